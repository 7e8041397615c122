-- Which Python processes are not watched, and why?
#include "queries/unwatched.sql"
