-- Was anything measured on this host, and when not?
#include "queries/coverage.sql"
