-- Which allowance of the EC2 instance was exceeded on which interface, when?
#include "queries/ena.sql"
