-- How many requests a second are served, by class of status? All requests; "no answer": the connection ended without one.
#include "requests.inc"
