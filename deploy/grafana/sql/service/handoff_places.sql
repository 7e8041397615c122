-- Which code picks connections up late?
#include "queries/handoff_places.sql"
