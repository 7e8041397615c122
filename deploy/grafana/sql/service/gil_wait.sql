-- Which threads kept others waiting for the GIL, running which code?
#include "queries/gil_wait.sql"
