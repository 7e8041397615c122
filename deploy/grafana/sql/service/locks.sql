-- Which locks did threads wait for, and which thread gave them back?
#include "queries/locks.sql"
