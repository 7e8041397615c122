/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The screen of `underspan top`, by a thread of its own: keys are answered at once. Uses ncurses
 * (libncursesw), opened at run time: no other command needs the library.
 */
#ifndef UNDERSPAN_COMMANDS_TOP_SCREEN_H
#define UNDERSPAN_COMMANDS_TOP_SCREEN_H

#include <pthread.h>

#include "base/util.h"
#include "commands/top/view.h"

struct top_screen {
	struct top_sums *sums;
	pthread_mutex_t *lock; /* of `sums` */
	struct top_view view;
	const char *subject; /* printable */
	void (*quit)(void);  /* from the screen's thread */
};

/* Finds the library and a usable terminal. -ENOTSUP with a sentence. */
int top_screen_check(struct why *why);

/* Takes the terminal; stderr is kept back until top_screen_stop(). */
int top_screen_start(const struct top_screen *screen, struct why *why);

/* From any thread: there are new numbers. */
void top_screen_draw(void);

/* Gives the terminal back. Does nothing without a start. */
void top_screen_stop(void);

#endif
