-- Which code keeps event loops from serving other connections?
#include "queries/loop_stall.sql"
