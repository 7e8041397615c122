// SPDX-License-Identifier: Apache-2.0
/* Counts of rows in memory only, readable by the run after a kill. See ledger.h. */
#include "pipeline/spool/ledger.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { LEDGER_VERSION = 2, LEDGER_TABLES = 64, BOOT_ID_LEN = 36 };

/*
 * A kill may happen between any two stores. A single store to `current` makes rows safe and ends
 * the doubt about their batch: `current` selects the valid state, the other state is being written.
 */
struct ledger_state {
	uint64_t durable;
	uint64_t written; /* last batch counted in `durable` */
};

struct ledger_table {
	char name[64];
	_Atomic uint64_t added;
	_Atomic uint64_t writing; /* in doubt unless equal to `written` */
	struct ledger_state states[2];
	_Atomic uint32_t current;
	uint32_t is_report;  /* the table that reports losses */
	uint64_t unreported; /* losses of earlier runs without a safe row in that table */
};

struct ledger_page {
	char magic[8];
	char boot_id[BOOT_ID_LEN + 4];
	struct ledger_table tables[LEDGER_TABLES];
};

struct ledger {
	struct ledger_page *page;
	int fd; /* the ledger's file; -1: memory only */
	bool has_report;
};

static const char magic[8] = { 'u', 's', 'p', 'a', 'n', 'L', '0' + LEDGER_VERSION, '\n' };

static void read_boot_id(char ret[BOOT_ID_LEN + 4])
{
	AUTO_CLOSE int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	memset(ret, 0, BOOT_ID_LEN + 4);
	if (fd < 0 || read(fd, ret, BOOT_ID_LEN) != BOOT_ID_LEN)
		ret[0] = '\0';
}

static void report_lost(struct ledger_page *page, ledger_on_lost on_lost, void *context)
{
	for (size_t i = 0; i < LEDGER_TABLES; i++) {
		struct ledger_table *t = &page->tables[i];
		const struct ledger_state *state = &t->states[t->current & 1];

		t->name[sizeof(t->name) - 1] = '\0';
		if (!*t->name || (t->added <= state->durable && !t->unreported))
			continue;
		on_lost(
			&(struct ledger_lost){
				.table = t->name,
				.rows = t->added > state->durable ? t->added - state->durable : 0,
				.unreported = t->unreported,
				.writing = t->writing != state->written ? t->writing : 0 },
			context);
	}
}

struct ledger *ledger_new(const char *const *tables, size_t n_tables, const char *report)
{
	struct ledger *ledger = calloc(1, sizeof(*ledger));
	struct ledger_page *page;

	if (!ledger)
		return NULL;
	ledger->fd = -1;
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	if (page == MAP_FAILED) {
		free(ledger);
		return NULL;
	}
	read_boot_id(page->boot_id);
	for (size_t i = 0; i < n_tables && i < LEDGER_TABLES; i++) {
		snprintf(page->tables[i].name, sizeof(page->tables[i].name), "%s", tables[i]);
		page->tables[i].is_report = !strcmp(tables[i], report);
		ledger->has_report |= page->tables[i].is_report;
	}
	memcpy(page->magic, magic, sizeof(magic));
	ledger->page = page;
	return ledger;
}

void ledger_close(struct ledger *ledger)
{
	if (!ledger)
		return;
	munmap(ledger->page, sizeof(*ledger->page));
	if (ledger->fd >= 0)
		close(ledger->fd);
	free(ledger);
}

/* Reports the file's losses, copies the counts from memory to the file, and switches to
 * the file. */
static int take_place(struct ledger *ledger, int fd, ledger_on_lost on_lost, void *context)
{
	struct ledger_page *page, *old = ledger->page;

	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	if (!memcmp(page->magic, magic, sizeof(magic)) &&
	    !memcmp(page->boot_id, old->boot_id, sizeof(page->boot_id)))
		report_lost(page, on_lost, context);
	memcpy(page, old, sizeof(*page));
	if (mremap(page, sizeof(*page), sizeof(*page), MREMAP_MAYMOVE | MREMAP_FIXED, old) == old)
		return 0;
	munmap(page, sizeof(*page));
	return -ENOMEM;
}

int ledger_keep(struct ledger *ledger, int directory, ledger_on_lost on_lost, void *context)
{
	struct stat st;
	int fd, err;

	if (!ledger || (ledger->fd >= 0 && !fstat(ledger->fd, &st) && st.st_nlink))
		return 0;
	fd = openat(directory, "ledger", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	/* allocated, not sparse: a store into a full file system would raise SIGBUS */
	err = -posix_fallocate(fd, 0, sizeof(*ledger->page));
	if (!err)
		err = take_place(ledger, fd, on_lost, context);
	if (err) {
		close(fd);
		return err;
	}
	if (ledger->fd >= 0)
		close(ledger->fd);
	ledger->fd = fd;
	return 0;
}

void ledger_add(struct ledger *ledger, size_t table, uint64_t rows)
{
	struct ledger_table *t;

	if (!ledger || table >= LEDGER_TABLES)
		return;
	t = &ledger->page->tables[table];
	/* single writer: no locked instruction needed */
	atomic_store_explicit(&t->added,
			      atomic_load_explicit(&t->added, memory_order_relaxed) + rows,
			      memory_order_relaxed);
}

void ledger_writing(struct ledger *ledger, size_t table, uint64_t order)
{
	if (ledger && table < LEDGER_TABLES)
		atomic_store(&ledger->page->tables[table].writing, order);
}

void ledger_add_durable(struct ledger *ledger, size_t table, uint64_t rows, uint64_t order)
{
	struct ledger_table *t;
	const struct ledger_state *now;
	uint32_t other;

	if (!ledger || table >= LEDGER_TABLES)
		return;
	t = &ledger->page->tables[table];
	now = &t->states[t->current & 1];
	other = !(t->current & 1);
	t->states[other] = (struct ledger_state){ .durable = now->durable + rows,
						  .written = order ?: now->written };
	atomic_store(&t->current, other);
	/* the first report rows contain all earlier losses */
	for (size_t i = 0; t->is_report && i < LEDGER_TABLES; i++)
		ledger->page->tables[i].unreported = 0;
}

void ledger_add_unreported(struct ledger *ledger, size_t table, uint64_t rows)
{
	if (ledger && ledger->has_report && table < LEDGER_TABLES)
		ledger->page->tables[table].unreported += rows;
}
