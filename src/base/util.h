/* SPDX-License-Identifier: Apache-2.0 */
/*
 * General helpers without knowledge of underspan: cleanup attributes, sizes, and `struct why`, the
 * message of an error.
 */
#ifndef UNDERSPAN_BASE_UTIL_H
#define UNDERSPAN_BASE_UTIL_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* One of two forms of a word behind a number printed without a fraction: "%zu %s". */
static inline const char *counted(double n, const char *one, const char *many)
{
	return n > 0.5 && n < 1.5 ? one : many;
}

/* The s of most words: "%zu row%s". */
static inline const char *plural(double n)
{
	return counted(n, "", "s");
}

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
/* The struct of the given type whose `member` is at `pointer`. */
#define CONTAINER_OF(pointer, type, member)                                                        \
	((type *)(void *)((char *)(pointer) - offsetof(type, member)))
#define PRINTF_LIKE(fmt, va) __attribute__((format(printf, fmt, va)))

#define NSEC_PER_SEC  1000000000ULL
#define NSEC_PER_MSEC 1000000ULL
#define NSEC_PER_USEC 1000ULL

/* Cleanup attributes for local variables. */
static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}
static inline void cleanup_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}
static inline void cleanup_fclose(FILE **f)
{
	if (*f)
		fclose(*f);
}
#define AUTO_FREE   __attribute__((cleanup(cleanup_free)))
#define AUTO_CLOSE  __attribute__((cleanup(cleanup_close)))
#define AUTO_FCLOSE __attribute__((cleanup(cleanup_fclose)))

/*
 * The reason of a failure as a sentence for people, with the object and the fix. Functions take
 * `why` as the last argument and fill it only when returning an error. The caller that handles the
 * error logs the reason once.
 */
struct why {
	char text[512];
};

/* Fills `why` (which may be NULL) and returns -err, so that callers can `return why_fail(...)`. */
static inline int why_fail(struct why *why, int err, const char *fmt, ...) PRINTF_LIKE(3, 4);
static inline int why_fail(struct why *why, int err, const char *fmt, ...)
{
	if (why) {
		va_list ap;

		va_start(ap, fmt);
		vsnprintf(why->text, sizeof(why->text), fmt, ap);
		va_end(ap);
	}
	return -err;
}

#endif
