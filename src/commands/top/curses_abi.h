/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of ncurses' binary interface (libncursesw.so.6 and .5) that the screen of `top` uses.
 * Declared here, as the library is opened at run time: a build needs no headers of ncurses.
 */
#ifndef UNDERSPAN_COMMANDS_TOP_CURSES_ABI_H
#define UNDERSPAN_COMMANDS_TOP_CURSES_ABI_H

#include <stdbool.h>
#include <stdio.h>

struct curses_screen;
struct curses_window;

enum {
	CURSES_ERR = -1,
	CURSES_KEY_DOWN = 0402,
	CURSES_KEY_UP = 0403,
	CURSES_NORMAL = 0,
	CURSES_REVERSE = 1 << 18,
	CURSES_BOLD = 1 << 21,
};

/* X(result, name, parameters) */
#define CURSES_FUNCTIONS(X)                                                                        \
	X(struct curses_screen *, newterm, (const char *kind, FILE *out, FILE *in))                \
	X(void, delscreen, (struct curses_screen *))                                               \
	X(struct curses_window *, newwin, (int rows, int columns, int y, int x))                   \
	X(int, endwin, (void))                                                                     \
	X(int, raw, (void))                                                                        \
	X(int, noecho, (void))                                                                     \
	X(int, curs_set, (int visible))                                                            \
	X(int, resize_term, (int rows, int columns))                                               \
	X(int, keypad, (struct curses_window *, bool on))                                          \
	X(int, nodelay, (struct curses_window *, bool on))                                         \
	X(int, clearok, (struct curses_window *, bool on))                                         \
	X(int, wresize, (struct curses_window *, int rows, int columns))                           \
	X(int, wgetch, (struct curses_window *))                                                   \
	X(int, werase, (struct curses_window *))                                                   \
	X(int, wmove, (struct curses_window *, int y, int x))                                      \
	X(int, waddnstr, (struct curses_window *, const char *text, int bytes))                    \
	X(int, wattrset, (struct curses_window *, int attributes))                                 \
	X(int, wrefresh, (struct curses_window *))

struct curses {
#define CURSES_MEMBER(result, name, parameters) result(*name) parameters;
	CURSES_FUNCTIONS(CURSES_MEMBER)
#undef CURSES_MEMBER
};

#endif
