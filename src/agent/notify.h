/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notifications to the service manager (sd_notify(3)): ready, reloading, stopping and, with a
 * watchdog, that the collector's loop runs. Silent without a manager.
 */
#ifndef UNDERSPAN_AGENT_NOTIFY_H
#define UNDERSPAN_AGENT_NOTIFY_H

#include <stdint.h>

#include "base/util.h"

/* Reads $NOTIFY_SOCKET and $WATCHDOG_USEC. */
void notify_init(void);

void notify_ready(const char *status);
void notify_reloading(void); /* to be followed by notify_ready() */
void notify_stopping(void);

/* To be called often from the collector's loop. */
void notify_alive(uint64_t now_ns);

#endif
