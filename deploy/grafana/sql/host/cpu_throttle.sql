-- Whose CPU quota was too small, and what did that cost?
#include "queries/cpu_throttle.sql"
