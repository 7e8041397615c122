-- Which peers cost time by lost packets or closed windows?
#include "queries/tcp_loss.sql"
