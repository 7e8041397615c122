-- What did connecting cost, and which connects failed?
#include "queries/tcp_connect.sql"
