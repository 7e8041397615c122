// SPDX-License-Identifier: Apache-2.0
/* Groups of BPF links. See links.h. */
#include "host/links.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/util.h"

static const uint64_t FOREVER_NS = UINT32_MAX * NSEC_PER_SEC;

static void destroy(struct probe_link *item)
{
	if (item->link)
		bpf_link__destroy(item->link);
	else
		close(item->fd);
}

static int add(struct link_list *list, struct probe_link item, size_t n_probes)
{
	struct probe_link *grown = realloc(list->items, (list->n + 1) * sizeof(*grown));

	if (!grown) {
		destroy(&item);
		return -ENOMEM;
	}
	list->items = grown;
	list->items[list->n++] = item;
	list->n_probes += n_probes;
	return 0;
}

int link_list_add(struct link_list *list, struct bpf_link *link)
{
	return add(list, (struct probe_link){ .link = link, .fd = -1 }, 1);
}

int link_list_add_fd(struct link_list *list, int fd, size_t n_probes)
{
	return add(list, (struct probe_link){ .fd = fd }, n_probes);
}

void link_list_destroy(struct link_list *list)
{
	while (list->n)
		destroy(&list->items[--list->n]);
	free(list->items);
	*list = (struct link_list){ 0 };
}

void link_list_take(struct link_list *list, struct bpf_object_skeleton *skeleton)
{
	for (int i = 0; i < skeleton->prog_cnt; i++) {
		if (*skeleton->progs[i].link)
			link_list_add(list, *skeleton->progs[i].link);
		*skeleton->progs[i].link = NULL;
	}
}

/* Shared by the threads that close a list's links and the thread that waits for them. */
struct closing {
	struct link_list list;
	atomic_size_t next;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	size_t running; /* threads */
	bool abandoned; /* the last thread frees this */
};

static void free_closing(struct closing *closing)
{
	pthread_cond_destroy(&closing->ended);
	pthread_mutex_destroy(&closing->lock);
	free(closing->list.items);
	free(closing);
}

static void *close_some(void *argument)
{
	struct closing *closing = argument;
	bool last;
	size_t i;

	while ((i = atomic_fetch_add(&closing->next, 1)) < closing->list.n)
		destroy(&closing->list.items[i]);
	pthread_mutex_lock(&closing->lock);
	last = !--closing->running && closing->abandoned;
	pthread_cond_signal(&closing->ended);
	pthread_mutex_unlock(&closing->lock);
	if (last)
		free_closing(closing);
	return NULL;
}

static struct closing *new_closing(struct link_list *list)
{
	struct closing *closing = calloc(1, sizeof(*closing));
	pthread_condattr_t attributes;

	if (!closing)
		return NULL;
	closing->list = *list;
	pthread_mutex_init(&closing->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&closing->ended, &attributes);
	pthread_condattr_destroy(&attributes);
	*list = (struct link_list){ 0 };
	return closing;
}

/* Lock held: no thread ends meanwhile. */
static void start_threads(struct closing *closing)
{
	enum { MAX_THREADS = 32 };

	while (closing->running < MAX_THREADS && closing->running < closing->list.n &&
	       !thread_start_detached(close_some, closing, 0))
		closing->running++;
}

bool link_list_destroy_within(struct link_list *list, uint64_t ns)
{
	uint64_t until_ns = clock_monotonic_ns() + ns;
	struct timespec until = { .tv_sec = (time_t)(until_ns / NSEC_PER_SEC),
				  .tv_nsec = (long)(until_ns % NSEC_PER_SEC) };
	struct closing *closing = list->n ? new_closing(list) : NULL;
	int err = 0;
	bool done;

	if (!closing) {
		link_list_destroy(list);
		return true;
	}
	pthread_mutex_lock(&closing->lock);
	start_threads(closing);
	if (!closing->running) /* no thread: here */
		link_list_destroy(&closing->list);
	while (closing->running && err != ETIMEDOUT)
		err = pthread_cond_timedwait(&closing->ended, &closing->lock, &until);
	done = !closing->running;
	closing->abandoned = !done;
	pthread_mutex_unlock(&closing->lock);
	if (done)
		free_closing(closing);
	return done;
}

void link_list_destroy_together(struct link_list *list)
{
	link_list_destroy_within(list, FOREVER_NS);
}

struct retirement {
	atomic_bool *done;
	size_t n;
	struct link_list *lists[];
};

static void *retire(void *of)
{
	struct retirement *retirement = of;

	for (size_t i = 0; i < retirement->n; i++)
		link_list_destroy_together(retirement->lists[i]);
	atomic_store(retirement->done, true);
	free(retirement);
	return NULL;
}

void links_retire(struct link_list *const *lists, size_t n, atomic_bool *done)
{
	struct retirement *retirement = malloc(sizeof(*retirement) + n * sizeof(*lists));

	if (!retirement) {
		for (size_t i = 0; i < n; i++)
			link_list_destroy(lists[i]);
		atomic_store(done, true);
		return;
	}
	*retirement = (struct retirement){ .done = done, .n = n };
	memcpy(retirement->lists, lists, n * sizeof(*lists));
	if (thread_start_detached(retire, retirement, 0))
		retire(retirement);
}
