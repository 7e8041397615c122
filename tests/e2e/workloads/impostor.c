// SPDX-License-Identifier: Apache-2.0
/*
 * An impostor: not a Python, but with all data a tracer searches for: symbols and texts of
 * CPython 3.11, or with -DMINOR=13 the description of 3.13, a runtime with interpreter, threads,
 * frames, names, and sys.modules. With valid data it passes for Python; a command word makes it
 * publish invalid data.
 *
 * Three threads: a holder of the "GIL" for 4 ms at a time, which also "collects", a waiter, and a
 * sleeper. Prints its pid. Commands, one per line: a word of lies[]; "fork", optionally with such a
 * word for the child; "calls" prints the number of calls of each collector.
 *
 * With -DCLONES the GC function has several clones, as compilers make.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "impostor_objects.h"

static struct block interp, tstates[3];
static char *active; /* dict threading._active */
static char *gil, *runtime = (char *)&_PyRuntime;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int lying;
static const char *volatile word_of_lie = "";

/* ---- threads ---- */

static char *frames[3], *codes[3], *names[3];

static void set_frame(int i, void *innermost)
{
	frames[i] = innermost;
	if (MINOR >= 13)
		put(&tstates[i], TSTATE_CFRAME, (uint64_t)innermost);
	else
		put((void *)*(uint64_t *)(tstates[i].at + TSTATE_CFRAME), 8, (uint64_t)innermost);
}

static void enter(int i, const char *name)
{
	char *tstate = tstates[i].at, *previous = i ? tstates[i - 1].at : NULL;
	char function[64], *t;

	put(tstate, TSTATE_INTERP, (uint64_t)&interp);
	put(tstate, TSTATE_IDENT, (uint64_t)pthread_self());
	put(tstate, TSTATE_TID, (uint64_t)syscall(SYS_gettid));
	put(tstate, TSTATE_NEXT, (uint64_t)previous);
	if (MINOR < 13)
		put(tstate, TSTATE_CFRAME, (uint64_t)new (64));
	snprintf(function, sizeof(function), "%s_function", name);
	codes[i] = code(function, "impostor/inner.py", 40 + i);
	set_frame(i, frame(codes[i], frame(code("outer", "impostor/outer.py", 7), NULL)));
	t = thread(name, (uint64_t)syscall(SYS_gettid));
	names[i] = t;
	set(active, (uint64_t)pthread_self(), number((uint64_t)pthread_self()), t);
	put(&interp, INTERP_THREADS, (uint64_t)tstate);
}

static void nap(long ns)
{
	struct timespec time = { 0, ns };

	nanosleep(&time, NULL);
}

static uint64_t waits, waited_ns;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void take_gil(int i)
{
	uint64_t since = 0;

	pthread_mutex_lock(&mutex);
	while (*(volatile int *)(gil + GIL_LOCKED)) {
		struct timespec until;

		since = since ? since : now_ns();
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += 5000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait((pthread_cond_t *)(gil + GIL_COND), &mutex, &until);
	}
	if (since) {
		waits++;
		waited_ns += now_ns() - since;
	}
	put(gil, GIL_HOLDER, (uint64_t)&tstates[i]);
	(*(uint64_t *)(gil + GIL_SWITCHES))++;
	*(volatile int *)(gil + GIL_LOCKED) = 1;
	pthread_mutex_unlock(&mutex);
}

static void drop_gil(void)
{
	pthread_mutex_lock(&mutex);
	*(volatile int *)(gil + GIL_LOCKED) = 0;
	pthread_cond_signal((pthread_cond_t *)(gil + GIL_COND));
	pthread_mutex_unlock(&mutex);
}

/* ---- the GC function ---- */

static volatile int verbose;

static inline __attribute__((always_inline)) long collect_generation(long generation)
{
	uint64_t *stats = (uint64_t *)(interp.at + INTERP_STATS) + 3 * generation;

	if (verbose)
		printf("gc: collecting generation %d...\n", (int)generation);
	nap(1500000); /* long enough for a stack */
	stats[0]++;
	stats[1] += 3;
	return (long)stats[0];
}

#define COLLECTOR(name)                                                                            \
	__attribute__((noinline, used)) static long name(long generation)                          \
	{                                                                                          \
		long n = collect_generation(generation);                                           \
                                                                                                   \
		__asm__ volatile("" : "+r"(n)); /* prevents tail calls and merging */              \
		return n;                                                                          \
	}
COLLECTOR(gc_collect_main)
#ifdef CLONES
/* clone names of GCC, GCC with LTO, and clang's ThinLTO */
#define NAMED(name, symbol)                                                                        \
	static long name(long) __asm__(symbol);                                                    \
	COLLECTOR(name)
NAMED(clone_constprop, "gc_collect_main.constprop.0")
NAMED(clone_isra, "gc_collect_main.isra.0")
NAMED(clone_lto, "gc_collect_main.lto_priv.0")
NAMED(clone_llvm, "gc_collect_main.llvm.1234567890")
/* a moved part of a function: not an entry, although callable here */
NAMED(cold_part, "gc_collect_main.cold")
static long (*const collectors[])(long) = { gc_collect_main, clone_constprop, clone_isra, clone_lto,
					    clone_llvm };
#else
static long (*const collectors[])(long) = { gc_collect_main };
#endif
enum { N_COLLECTORS = sizeof(collectors) / sizeof(collectors[0]) };
static uint64_t calls[N_COLLECTORS];

/* ---- invalid data ---- */

static char *beyond; /* unmapped memory */
static uint64_t fresh;

static void lie_circle(void)
{
	char *other = frame(codes[1], NULL);

	for (int i = 0; i < 3; i++) {
		put(frames[i], FRAME_PREVIOUS, (uint64_t)other);
		put(other, FRAME_PREVIOUS, (uint64_t)frames[i]);
	}
	put(&tstates[0], TSTATE_NEXT, (uint64_t)&tstates[2]);
	put(&interp, INTERP_NEXT, (uint64_t)&interp);
}

static void lie_dict(void)
{
	put((char *)*(uint64_t *)(active + 32), 24, 1ULL << 60);
	put(active, 16, 1ULL << 60);
	put((void *)*(uint64_t *)(interp.at + INTERP_MODULES), 16, 1ULL << 60);
}

/* The maximum number of entries searched by the agent, all readable. */
static void lie_wide(void)
{
	char *keys = huge(8 << 20);

	keys[9] = 20;
	put(keys, 24, 1 << 18);
	put(active, 32, (uint64_t)keys);
}

static char *big_str(void)
{
	char *s = huge((1ULL << 30) + 4096);

	memcpy(s, str(""), STR_DATA);
	put(s, STR_LENGTH, 1ULL << 30);
	memset(s + STR_DATA, 'A', 8192);
	return s;
}

static void set_names(char *object)
{
	for (int i = 0; i < 3; i++) {
		char *keys = (char *)*(uint64_t *)(*(uint64_t *)(names[i] - 24) + 32);

		put(keys, 32 + 32 + 8, (uint64_t)object);
	}
}

static void lie_name(void)
{
	set_names(big_str());
}

static void lie_file(void)
{
	char *big = big_str(), *lines = huge((1ULL << 30) + 4096);

	put(lines, BYTES_SIZE, 1ULL << 30);
	for (int i = 0; i < 3; i++) {
		put(codes[i], CODE_FILE, (uint64_t)big);
		put(codes[i], CODE_QUALNAME, (uint64_t)big);
		put(codes[i], CODE_LINES, (uint64_t)lines);
	}
}

static void lie_negative(void)
{
	char *s = str("negative");

	put(s, STR_LENGTH, -1ULL);
	set_names(s);
	for (int i = 0; i < 3; i++) {
		put(codes[i], CODE_FILE, (uint64_t)s);
		put((void *)*(uint64_t *)(codes[i] + CODE_LINES), BYTES_SIZE, -1ULL);
		put(frames[i], FRAME_IP, -1ULL);
	}
	put((char *)*(uint64_t *)(active + 32), 24, -1ULL);
}

static void lie_fault(void)
{
	set_names(beyond);
	for (int i = 0; i < 3; i++) {
		put(codes[i], CODE_FILE, (uint64_t)beyond + 8 * i);
		put(frames[i], FRAME_PREVIOUS, i ? (uint64_t)beyond : ~0ULL << 47);
	}
	put(active, 32, (uint64_t)beyond);
	put(&interp, INTERP_MODULES, (uint64_t)beyond);
}

/* Random bytes in the runtime, except its description, and in the interpreter state. */
static void lie_garbage(void)
{
	uint64_t x = 88172645463325252ULL;

	for (int i = HEAD; i + 8 < 16384; i += 8) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		if (MINOR >= 13 || i < GIL || i >= GIL + 128)
			put(runtime, i,
			    i == HEAD || x & 1
				    ? x
				    : (uint64_t)&tstates[x >> 60 & 1] + (x >> 50 & 0xff8));
	}
}

static const struct {
	const char *word;
	void (*begin)(void);
} lies[] = {
	{ "circle", lie_circle }, { "dict", lie_dict },	      { "wide", lie_wide },
	{ "name", lie_name },	  { "file", lie_file },	      { "negative", lie_negative },
	{ "fault", lie_fault },	  { "garbage", lie_garbage }, { "flood", NULL },
};

/* For "flood" and "file": new code objects with names and files of the maximum length. */
static void lie_anew(int i)
{
	static char *ring[3][4096];
	char text[2048], *inner = NULL;

	for (int k = 0; k < 100; k++) {
		char **slot = &ring[i][fresh++ % 4096];

		if (!*slot) {
			memset(text, 'f', sizeof(text) - 1);
			snprintf(text, 32, "flood_%d_%llu", i, (unsigned long long)fresh);
			text[strlen(text)] = '_';
			text[sizeof(text) - 1] = 0;
			*slot = code(text, text, 1);
			if (!strcmp(word_of_lie, "file"))
				put(*slot, CODE_LINES, *(uint64_t *)(codes[i] + CODE_LINES));
		}
		put(*slot, CODE_LINE, fresh); /* another code object at this address */
		inner = frame(*slot, inner);
	}
	set_frame(i, inner); /* the old object leaks: the program is short-lived */
}

/* ---- main loop ---- */

static void holds(void)
{
	static uint64_t n;

	take_gil(0);
	*(volatile int *)(interp.at + INTERP_COLLECTING) = 0;
	collectors[n % N_COLLECTORS](n % 3);
	calls[n % N_COLLECTORS]++;
	n++;
#ifdef CLONES
	cold_part(0);
#endif
	nap(2000000);
	drop_gil();
	nap(1000000);
}

static void *wait_thread(void *nothing)
{
	(void)nothing;
	pthread_mutex_lock(&mutex);
	enter(1, "impostor waiter");
	pthread_mutex_unlock(&mutex);
	for (;;) {
		if (lying == 2)
			lie_anew(1);
		take_gil(1);
		drop_gil();
		nap(300000);
	}
	return nothing;
}

static void *sleep_thread(void *nothing)
{
	(void)nothing;
	pthread_mutex_lock(&mutex);
	enter(2, "impostor sleeper");
	pthread_mutex_unlock(&mutex);
	for (;;) {
		if (lying == 2)
			lie_anew(2);
		nap(3000000);
	}
	return nothing;
}

static void set_up(void)
{
	pthread_condattr_t monotonic;

	gil = MINOR >= 13 ? new (128) : runtime + GIL;
	if (MINOR >= 13)
		put(&interp, GIL, (uint64_t)gil);
	put(gil, 0, 5000);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init((pthread_cond_t *)(gil + GIL_COND), &monotonic);
	active = dict(1);
	put(&thread_type, 168, 1 << 4);
	char *all = dict(0), *module = new (64), *of_module = dict(0);
	set(all, 0, str("sys"), number(1));
	set(all, 0, str("threading"), module);
	put(module, 16, (uint64_t)of_module);
	set(of_module, 0, str("_active"), active);
	put(&interp, INTERP_MODULES, (uint64_t)all);
	enter(0, "impostor main");
	put(runtime, HEAD, (uint64_t)&interp);
}

static int begin_lie(const char *what)
{
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		if (strcmp(lies[i].word, what))
			continue;
		word_of_lie = lies[i].word;
		if (lies[i].begin)
			lies[i].begin();
		lying = !lies[i].begin || lies[i].begin == lie_file ? 2 : 1;
		return 1;
	}
	return 0;
}

/* As Python in a forked child: the remaining thread becomes the main thread. */
static void after_fork(void)
{
	put(&tstates[0], TSTATE_NEXT, 0);
	put(&tstates[0], TSTATE_TID, (uint64_t)syscall(SYS_gettid));
	put(&interp, INTERP_THREADS, (uint64_t)&tstates[0]);
	pthread_mutex_init(&mutex, NULL);
	*(int *)(gil + GIL_LOCKED) = 0;
}

static void fork_child(const char *lie)
{
	pid_t child = fork();

	if (child) {
		printf("{\"child\": %d}\n", child);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	after_fork();
	if (lie)
		begin_lie(lie);
	dup2(2, 1);
	for (;;)
		holds();
}

static void obey(char *line)
{
	char *first = strtok(line, " \n"), *second = strtok(NULL, "\n");

	if (first && !strcmp(first, "fork")) {
		fork_child(second);
	} else if (first && !strcmp(first, "collect")) {
		holds();
		printf("{}\n");
	} else if (first && !strcmp(first, "calls")) {
		printf("{\"calls\": [");
		for (int i = 0; i < N_COLLECTORS; i++)
			printf("%s%llu", i ? ", " : "", (unsigned long long)calls[i]);
		printf("], \"waits\": %llu, \"waited_ns\": %llu, \"now\": %llu}\n",
		       (unsigned long long)waits, (unsigned long long)waited_ns,
		       (unsigned long long)now_ns());
	} else {
		printf("{\"lies\": %d}\n", begin_lie(first ? first : ""));
	}
}

int main(int argc, char **argv)
{
	char line[100];
	pthread_t thread_id;
	int idle = argc > 1 && !strcmp(argv[1], "idle");

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setvbuf(stdout, NULL, _IOLBF, 0);
	beyond = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	set_up();
	if (!idle) {
		pthread_create(&thread_id, NULL, wait_thread, NULL);
		pthread_create(&thread_id, NULL, sleep_thread, NULL);
	}
	printf("{\"pid\": %d, \"tid\": %d}\n", getpid(), getpid());
	for (struct pollfd in = { 0, POLLIN, 0 };;) {
		if (lying == 2)
			lie_anew(0);
		if (!idle)
			holds();
		if (poll(&in, 1, idle ? -1 : 0) > 0) {
			if (!fgets(line, sizeof(line), stdin))
				return 0;
			obey(line);
		}
	}
}
