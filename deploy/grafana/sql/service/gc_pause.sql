-- Which collections stopped a process longest, and what Python code set them off?
#include "queries/gc_pause.sql"
