-- Which collections stopped a process longest, and what Python code set them off? Those at the end of an interpreter (at_exit), for which no request waits, are last.
#include "queries/gc_pause.sql"
