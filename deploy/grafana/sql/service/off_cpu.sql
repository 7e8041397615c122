-- Where did busy threads wait, by cause and place?
#include "queries/off_cpu.sql"
