// SPDX-License-Identifier: Apache-2.0
/* Questions that a second thread asks. See beside.h. */
#include "commands/explain/beside.h"

#include "commands/explain/ask.h"
#include "base/util.h"

void beside_add(struct beside *b, const char *key, const char *file, int64_t from_us, int64_t to_us)
{
	b->questions[b->n++] = (struct question){ key, file, from_us, to_us };
}

static void *ask_all(void *argument)
{
	struct beside *b = argument;

	for (size_t i = 0; i < b->n && !b->err; i++) {
		const struct question *q = &b->questions[i];

		b->err = explain_attach(b->client, b->into, b->of, q->key, q->file, q->from_us,
					q->to_us, &b->why);
	}
	return NULL;
}

void beside_begin(struct beside *b, const json_t *of, struct clickhouse_client *second)
{
	b->of = json_deep_copy(of);
	b->into = json_object();
	b->client = second;
	if (!b->of || !b->into)
		b->err = why_fail(&b->why, ENOMEM, "out of memory");
	b->runs = second && !b->err && !pthread_create(&b->thread, NULL, ask_all, b);
}

int beside_end(struct beside *b, json_t *into, struct clickhouse_client *client, struct why *why)
{
	if (b->runs) {
		pthread_join(b->thread, NULL);
	} else {
		b->client = client;
		ask_all(b);
	}
	if (b->err)
		*why = b->why;
	else if (json_object_update(into, b->into))
		b->err = why_fail(why, ENOMEM, "out of memory");
	json_decref(b->of);
	json_decref(b->into);
	return b->err;
}
