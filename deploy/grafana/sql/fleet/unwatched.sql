-- Which Python processes of the last day before the end of the window are not watched, by which trackers, and why?
#include "queries/unwatched.sql"
