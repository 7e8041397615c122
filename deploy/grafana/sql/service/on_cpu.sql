-- Which Python code computes?
#include "queries/on_cpu.sql"
