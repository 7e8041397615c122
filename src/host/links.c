// SPDX-License-Identifier: Apache-2.0
/* Groups of BPF links. See links.h. */
#include "host/links.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

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

struct closing {
	struct link_list *list;
	atomic_size_t next;
};

static void *close_some(void *argument)
{
	struct closing *closing = argument;
	size_t i;

	while ((i = atomic_fetch_add(&closing->next, 1)) < closing->list->n)
		destroy(&closing->list->items[i]);
	return NULL;
}

void link_list_destroy_together(struct link_list *list)
{
	enum { MAX_THREADS = 31 };
	struct closing closing = { .list = list };
	pthread_t threads[MAX_THREADS];
	size_t n = 0;

	while (n < MAX_THREADS && n + 1 < list->n &&
	       !pthread_create(&threads[n], NULL, close_some, &closing))
		n++;
	close_some(&closing);
	while (n)
		pthread_join(threads[--n], NULL);
	free(list->items);
	*list = (struct link_list){ 0 };
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
	pthread_attr_t attributes;
	pthread_t thread;

	if (!retirement) {
		for (size_t i = 0; i < n; i++)
			link_list_destroy(lists[i]);
		atomic_store(done, true);
		return;
	}
	*retirement = (struct retirement){ .done = done, .n = n };
	memcpy(retirement->lists, lists, n * sizeof(*lists));
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attributes, retire, retirement))
		retire(retirement);
	pthread_attr_destroy(&attributes);
}
