-- Which listeners made clients wait?
#include "queries/tcp_accept.sql"
