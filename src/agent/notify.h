/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent tells its service manager (sd_notify(3)): that it is ready, reloads, stops, and,
 * where there is a watchdog, that the collector still goes round. Says nothing where nobody asks.
 */
#ifndef UNDERSPAN_NOTIFY_H
#define UNDERSPAN_NOTIFY_H

#include <stdint.h>

#include "util.h"

/* Reads the manager's wishes from the environment: $NOTIFY_SOCKET, $WATCHDOG_USEC. */
void notify_init(void);

void notify_ready(const char *status);
void notify_reloading(void); /* then notify_ready() */
void notify_stopping(void);

/* From the collector's loop, often. */
void notify_alive(uint64_t now_ns);

#endif
