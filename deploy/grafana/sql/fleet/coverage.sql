-- Was anything measured? Per host and tracker: for which share of the window the agent ran, and when not; what was seen, lost, left out.
#include "queries/coverage.sql"
