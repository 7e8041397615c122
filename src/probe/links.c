// SPDX-License-Identifier: Apache-2.0
/* Probes that live and die together. See links.h. */
#include "probe/links.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "log.h"
#include "util.h"

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

struct retirement {
	struct link_list *lists;
	size_t n;
	atomic_bool *done;
};

static void *retire(void *of)
{
	struct retirement *retirement = of;

	for (size_t i = 0; i < retirement->n; i++)
		link_list_destroy(&retirement->lists[i]);
	atomic_store(retirement->done, true);
	free(retirement);
	return NULL;
}

void links_retire(struct link_list *lists, size_t n, atomic_bool *done)
{
	struct retirement *retirement = malloc(sizeof(*retirement));
	pthread_attr_t attributes;
	pthread_t thread;

	if (!retirement) {
		for (size_t i = 0; i < n; i++)
			link_list_destroy(&lists[i]);
		atomic_store(done, true);
		return;
	}
	*retirement = (struct retirement){ lists, n, done };
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attributes, retire, retirement))
		retire(retirement);
	pthread_attr_destroy(&attributes);
}
