// SPDX-License-Identifier: Apache-2.0
/* Rows that only memory holds, counted where a killed agent's successor finds it. See ledger.h. */
#include "pipeline/ledger.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { LEDGER_VERSION = 2, LEDGER_TABLES = 64, BOOT_ID_LEN = 36 };

/*
 * A kill may come between any two stores. Rows become safe and their batch stops being in doubt in
 * one store: `current` says which of the two states holds, the other one is being written.
 */
struct ledger_state {
	uint64_t secured;
	uint64_t written; /* the last batch that is part of `secured` */
};

struct ledger_table {
	char name[64];
	_Atomic uint64_t added;
	_Atomic uint64_t writing; /* in doubt unless it equals `written` */
	struct ledger_state states[2];
	_Atomic uint32_t current;
	uint32_t is_report; /* of the table that has what was lost */
	uint64_t untold;    /* lost by runs before, and not safe as a row of that table yet */
};

struct ledger_page {
	char magic[8];
	char boot_id[BOOT_ID_LEN + 4];
	struct ledger_table tables[LEDGER_TABLES];
};

struct ledger {
	struct ledger_page *page;
	int fd; /* of the file that it is; -1: it is in memory only */
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

static void tell_lost(struct ledger_page *page, ledger_on_lost on_lost, void *context)
{
	for (size_t i = 0; i < LEDGER_TABLES; i++) {
		struct ledger_table *t = &page->tables[i];
		const struct ledger_state *state = &t->states[t->current & 1];

		t->name[sizeof(t->name) - 1] = '\0';
		if (!*t->name || (t->added <= state->secured && !t->untold))
			continue;
		on_lost(
			&(struct ledger_lost){
				.table = t->name,
				.rows = t->added > state->secured ? t->added - state->secured : 0,
				.untold = t->untold,
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

/* What the file had is told, what memory has is in it, and it takes the memory's place. */
static int take_place(struct ledger *ledger, int fd, ledger_on_lost on_lost, void *context)
{
	struct ledger_page *page, *old = ledger->page;

	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	if (!memcmp(page->magic, magic, sizeof(magic)) &&
	    !memcmp(page->boot_id, old->boot_id, sizeof(page->boot_id)))
		tell_lost(page, on_lost, context);
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
	/* allocated, not sparse: a store into a page that finds no room would be a signal */
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
	/* one writer: no need for the bus */
	atomic_store_explicit(&t->added,
			      atomic_load_explicit(&t->added, memory_order_relaxed) + rows,
			      memory_order_relaxed);
}

void ledger_writing(struct ledger *ledger, size_t table, uint64_t order)
{
	if (ledger && table < LEDGER_TABLES)
		atomic_store(&ledger->page->tables[table].writing, order);
}

void ledger_secure(struct ledger *ledger, size_t table, uint64_t rows, uint64_t order)
{
	struct ledger_table *t;
	const struct ledger_state *now;
	uint32_t other;

	if (!ledger || table >= LEDGER_TABLES)
		return;
	t = &ledger->page->tables[table];
	now = &t->states[t->current & 1];
	other = !(t->current & 1);
	t->states[other] = (struct ledger_state){ .secured = now->secured + rows,
						  .written = order ?: now->written };
	atomic_store(&t->current, other);
	/* the first rows of the report have all that was lost before it */
	for (size_t i = 0; t->is_report && i < LEDGER_TABLES; i++)
		ledger->page->tables[i].untold = 0;
}

void ledger_untold(struct ledger *ledger, size_t table, uint64_t rows)
{
	if (ledger && ledger->has_report && table < LEDGER_TABLES)
		ledger->page->tables[table].untold += rows;
}
