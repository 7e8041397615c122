// SPDX-License-Identifier: Apache-2.0
/* Recovery of an earlier run's spool. See recover.h. */
#include "pipeline/recover.h"

#include <string.h>

#include "base/log.h"
#include "pipeline/queue.h"
#include "base/clock.h"
#include "base/util.h"

/* A table of an earlier run with other trackers or of another version: delivered, too. */
static struct table_queue *add_queue(struct pipeline *p, const char *table)
{
	struct table_queue *q = &p->queues[p->n_queues];

	if (p->n_queues == p->n_tables + RECOVER_TABLES_MAX)
		return NULL;
	q->name = strdup(table);
	if (!q->name)
		return NULL;
	q->last = &q->first;
	p->n_queues++;
	return q;
}

static int take_up(const struct spool_name *name, uint64_t disk_bytes, uint64_t age_ns,
		   void *context)
{
	struct pipeline *p = context;
	struct table_queue *q = queue_find(p, name->table);
	struct batch *batch;
	uint64_t now = clock_monotonic_ns();

	if (name->order >= p->next_order)
		p->next_order = name->order + 1;
	if (!q)
		q = add_queue(p, name->table);
	if (!q) /* stays in the spool, for a run with fewer unknown tables */
		return 0;
	batch = batch_new();
	if (!batch)
		return -ENOMEM;
	batch->order = name->order;
	strcpy(batch->part, name->part);
	batch->state = BATCH_READY;
	batch->rows = name->rows;
	batch->opened_ns = now - age_ns; /* may be before the boot */
	batch->from_us = batch->to_us = clock_wall_us(now) - age_ns / NSEC_PER_USEC;
	batch->disk_bytes = disk_bytes;
	batch->durable = batch->recovered = true;
	queue_append(p, q, batch);
	queue_spooled(p, q, batch);
	q->counts.recovered += batch->rows;
	return 0;
}

static void count_lost(const struct ledger_lost *lost, void *context)
{
	struct pipeline *p = context;
	struct table_queue *q = queue_find(p, lost->table);
	uint64_t rows = lost->rows;

	/* a batch being written at the kill may be a file, complete or torn, and is counted */
	for (const struct batch *b = q && lost->writing ? q->first : NULL; b; b = b->next) {
		if (b->order == lost->writing && !*b->part)
			rows -= b->rows < rows ? b->rows : rows;
	}
	if (q) {
		q->counts.lost_crash += rows + lost->unreported;
		ledger_add_unreported(p->ledger, (size_t)(q - p->queues), rows + lost->unreported);
	}
	if (rows)
		log_warn("%s: the previous run ended without saving the last %llu row%s",
			 lost->table, (unsigned long long)rows, plural(rows));
}

void recover_ledger(struct pipeline *p)
{
	ledger_keep(p->ledger, spool_directory(p->spool), count_lost, p);
}

static void open_ledger(struct pipeline *p)
{
	AUTO_FREE const char **names = calloc(p->n_tables, sizeof(*names));

	for (size_t i = 0; names && i < p->n_tables; i++)
		names[i] = p->queues[i].name;
	if (names)
		p->ledger = ledger_new(names, p->n_tables, "ebpf_agent");
	if (ledger_keep(p->ledger, spool_directory(p->spool), count_lost, p) || !p->ledger)
		log_warn("spool.directory: no room for a ledger in %s: rows lost in a crash are "
			 "not counted until there is room",
			 p->limits.spool.directory);
}

int recover_spool(struct pipeline *p, struct why *why)
{
	uint64_t rows = 0;
	int err = spool_open(&p->limits.spool, &p->spool, why);

	if (!err)
		err = spool_scan(p->spool, take_up, p, why);
	if (err)
		return err;
	open_ledger(p);
	for (size_t i = 0; i < p->n_queues; i++)
		rows += p->queues[i].counts.recovered;
	if (rows)
		log_info("spool: %llu row%s in %llu batch%s of an earlier run %s to be delivered",
			 (unsigned long long)rows, plural(rows), (unsigned long long)p->spool_files,
			 counted(p->spool_files, "", "es"), counted(rows, "is", "are"));
	return 0;
}
