// SPDX-License-Identifier: Apache-2.0
/* Function names by address, with caches of files and processes. See symbols.h. */
#include "rows/symbols.h"

#include <string.h>
#include <uthash.h>

#include "base/clock.h"
#include "host/code_map.h"
#include "elf/elf_file.h"
#include "host/proc.h"
#include "elf/symbol_table.h"
#include "workers/reader_process.h"
#include "rows/row_context.h"
#include "workers/readers.h"

enum {
	MAX_FILES_BYTES = 12 << 20, /* all symbol tables of files */
	MAX_PROCESSES = 512,
};
/* Limits re-reads of maps for a process with addresses outside of known files. */
static const uint64_t REREAD_NS = NSEC_PER_SEC;
/* Sums and events of a process arrive after its end. */
static const uint64_t KEEP_GONE_NS = 30 * NSEC_PER_SEC;
/* Unused files (old releases) are evicted and can be read again. */
static const uint64_t KEEP_FILE_NS = 120 * NSEC_PER_SEC;

/* Symbols of a file. */
struct file_symbols {
	struct symbol_table table;
	struct elf_segment loads[ELF_MAX_SEGMENTS];
	size_t n_loads;
};

struct file {
	struct file_identity identity;
	struct file_symbols symbols;
	char name[64]; /* "[libc.so.6]" */
	struct file_id file_id;
	uint32_t read_by;  /* process through which a job reads the file; 0: done */
	uint64_t used;	   /* number of the last row using the file */
	uint64_t used_ns;  /* time of the last use */
	UT_hash_handle hh; /* in LRU order, oldest first */
};

struct process_maps {
	uint32_t host_pid;
	uint64_t read_ns;
	uint64_t gone_ns; /* time of exit or exec(); 0: alive */
	bool being_read;
	struct mapping *items;
	size_t n;
	struct process_maps *next_retired;
	UT_hash_handle hh;
};

struct maps_job {
	struct job job;
	struct mapping *items;
	size_t n;
};

struct file_job {
	struct job job;
	struct mapping of;
	struct file_identity identity; /* .ino 0: it cannot be opened */
	struct file_symbols symbols;
};

static const char unread_text[] = "<unread>";

static struct symbol_table kernel_symbols;
static struct file *files;
static struct process_maps *processes;
static struct process_maps *retired; /* unused, but names in them may be borrowed */
static size_t files_bytes;
static uint64_t row_number; /* number of the current row */
static uint64_t row_ns;	    /* start time of the current row */

static struct process_maps *maps_find(uint32_t host_pid)
{
	struct process_maps *maps;

	HASH_FIND(hh, processes, &host_pid, sizeof(host_pid), maps);
	return maps;
}

static struct file *file_find(const struct file_identity *identity)
{
	struct file *file;

	HASH_FIND(hh, files, identity, sizeof(*identity), file);
	return file;
}

static void file_free(struct file *file)
{
	HASH_DEL(files, file);
	files_bytes -= symbol_table_bytes(&file->symbols.table) + sizeof(*file);
	symbol_table_free(&file->symbols.table);
	free(file);
}

static void retire_maps(struct process_maps *maps)
{
	maps->next_retired = retired;
	retired = maps;
}

static void free_retired(void)
{
	struct process_maps *next;

	for (struct process_maps *maps = retired; maps; maps = next) {
		next = maps->next_retired;
		free(maps->items);
		free(maps);
	}
	retired = NULL;
}

static void forget_maps(struct process_maps *maps)
{
	HASH_DEL(processes, maps);
	retire_maps(maps);
}

/* Replaces the old mappings by the new. False: out of memory, nothing changed. */
static bool replace_items(struct process_maps *maps, struct mapping *items, size_t n)
{
	struct process_maps *old = maps->items ? calloc(1, sizeof(*old)) : NULL;

	if (maps->items && !old)
		return false;
	if (old) {
		old->items = maps->items;
		retire_maps(old);
	}
	maps->items = items;
	maps->n = n;
	return true;
}

static void forget_processes(void)
{
	struct process_maps *maps, *next;

	HASH_ITER(hh, processes, maps, next)
	forget_maps(maps);
}

/* ---- jobs: the file of a mapping, and its symbols ---- */

/* Passed to a reader process and back; the table's heap memory comes as extra data. */
struct file_reading {
	uint32_t host_pid;
	uint64_t low, high;
	bool only_identify;
	struct file_identity identity; /* .ino 0: it cannot be opened */
	struct symbol_table table;     /* without arrays */
	struct elf_segment loads[ELF_MAX_SEGMENTS];
	size_t n_loads;
};

/* A file of another type has no symbols. */
static void read_open_file(struct file_reading *f, int fd, struct read_extra *extra)
{
	struct elf_file elf;

	if (elf_file_open(fd, &elf, NULL))
		return;
	memcpy(f->loads, elf.loads, sizeof(elf.loads));
	f->n_loads = elf.n_loads;
	elf_file_close(&elf);
	symbol_table_read_elf(&f->table, fd, f->host_pid);
	extra->data = symbol_table_pack(&f->table, &extra->data_size);
}

static void read_in_process(void *argument, struct read_extra *extra)
{
	struct file_reading *f = argument;
	AUTO_CLOSE int fd = proc_open_mapping(f->host_pid, f->low, f->high, NULL);

	if (fd >= 0 && file_identify(fd, f->host_pid, &f->identity))
		f->identity = (struct file_identity){ 0 };
	if (f->identity.ino && !f->only_identify)
		read_open_file(f, fd, extra);
}

static void read_mapped_file(struct file_job *j, bool only_identify)
{
	struct read_extra extra = { .fd = -1 };
	struct file_reading f = { .host_pid = j->job.host_pid,
				  .low = j->of.low,
				  .high = j->of.high,
				  .only_identify = only_identify };

	if (reader_process_run(read_in_process, &f, sizeof(f), &extra))
		return;
	j->identity = f.identity;
	memcpy(j->symbols.loads, f.loads, sizeof(f.loads));
	j->symbols.n_loads = f.n_loads;
	symbol_table_unpack(&f.table, extra.data, extra.data_size, &j->symbols.table);
}

static void identify_file(struct job *job)
{
	read_mapped_file((struct file_job *)job, true);
}

static void read_file(struct job *job)
{
	read_mapped_file((struct file_job *)job, false);
}

static bool give_file_job(uint32_t host_pid, const struct mapping *m, void (*run)(struct job *job),
			  void (*done)(struct job *job))
{
	struct file_job *j = calloc(1, sizeof(*j));

	if (!j)
		return false;
	j->job = (struct job){ .host_pid = host_pid, .run = run, .done = done };
	j->of = *m;
	if (readers_submit(&j->job))
		return true;
	free(j);
	return false;
}

/* Looks up the mapping in the process's current mappings. */
static struct mapping *mapping_of(const struct file_job *j)
{
	struct process_maps *maps = maps_find(j->job.host_pid);
	struct mapping *m = maps ? code_map_find(maps->items, maps->n, j->of.low) : NULL;

	return m && m->file_id.ino == j->of.file_id.ino ? m : NULL;
}

static void on_identified(struct job *job)
{
	struct file_job *j = (struct file_job *)job;
	struct file *file = file_find(&j->identity);
	struct mapping *m = mapping_of(j);

	if (file)
		file->file_id = j->of.file_id;
	if (m) {
		m->being_opened = false;
		m->cannot_be_opened = job->ran && !j->identity.ino;
		m->identity = j->identity;
	}
	free(j);
}

static void file_is_read(struct job *job)
{
	struct file_job *j = (struct file_job *)job;
	struct file *file = file_find(&j->of.identity);
	struct mapping *m = mapping_of(j);

	if (file && job->ran && !memcmp(&j->identity, &file->identity, sizeof(j->identity))) {
		file->symbols = j->symbols;
		file->read_by = 0;
		files_bytes += symbol_table_bytes(&file->symbols.table);
	} else {
		/* unmapped or replaced: another process may still map the file */
		symbol_table_free(&j->symbols.table);
		if (m)
			m->cannot_be_opened = job->ran;
		if (file)
			file_free(file);
	}
	free(j);
}

/* Starts to read the file of the mapping. NULL: not possible now. */
static struct file *file_new(uint32_t host_pid, const struct mapping *m)
{
	struct file *file = calloc(1, sizeof(*file));

	if (!file)
		return NULL;
	if (!give_file_job(host_pid, m, read_file, file_is_read)) {
		free(file);
		return NULL;
	}
	file->identity = m->identity;
	file->file_id = m->file_id;
	file->read_by = host_pid;
	snprintf(file->name, sizeof(file->name), "%s", m->name);
	HASH_ADD(hh, files, identity, sizeof(file->identity), file);
	files_bytes += sizeof(*file);
	return file;
}

/* ---- files ---- */

/* Does not evict files with names borrowed by the current row. */
static void make_room(void)
{
	struct file *file, *next;

	if (HASH_COUNT(processes) >= MAX_PROCESSES)
		forget_processes();
	HASH_ITER(hh, files, file, next)
	{
		if (files_bytes <= MAX_FILES_BYTES && row_ns - file->used_ns < KEEP_FILE_NS)
			return;
		if (file->used != row_number && !file->read_by)
			file_free(file);
	}
}

/* For an ended process: the file as known from another process with the same mapping. */
static struct file *find_file(const struct mapping *m)
{
	for (struct file *file = files; file; file = file->hh.next) {
		if (m->file_id.ino && file->file_id.ino == m->file_id.ino &&
		    file->file_id.major == m->file_id.major &&
		    file->file_id.minor == m->file_id.minor && !strcmp(file->name, m->name))
			return file;
	}
	return NULL;
}

static void mark_used(struct file *file)
{
	if (file->used != row_number) { /* most recently used */
		HASH_DEL(files, file);
		HASH_ADD(hh, files, identity, sizeof(file->identity), file);
		file->used = row_number;
		file->used_ns = row_ns;
	}
}

/* False: pending. *ret NULL: no file. */
static bool file_of(struct row_context *context, uint32_t host_pid, struct mapping *m,
		    struct file **ret)
{
	struct file *file = m->identity.ino ? file_find(&m->identity) : NULL;

	if (!file && m->cannot_be_opened)
		file = find_file(m);
	else if (!file && m->identity.ino)
		file = file_new(host_pid, m);
	else if (!file && !m->being_opened)
		m->being_opened = give_file_job(host_pid, m, identify_file, on_identified);
	if (m->being_opened)
		row_waits_for(context, host_pid);
	if (file && file->read_by)
		row_waits_for(context, file->read_by);
	*ret = file;
	if (file)
		mark_used(file);
	return file ? !file->read_by : m->cannot_be_opened;
}

static const char *file_symbol(const struct file_symbols *symbols, uint64_t offset)
{
	for (size_t i = 0; i < symbols->n_loads; i++) {
		const struct elf_segment *s = &symbols->loads[i];

		if (offset >= s->file_offset && offset - s->file_offset < s->file_size)
			return symbol_table_find(&symbols->table, s->va + offset - s->file_offset);
	}
	return NULL;
}

/* ---- processes ---- */

static void forget_gone(uint64_t now_ns)
{
	struct process_maps *maps, *next;

	HASH_ITER(hh, processes, maps, next)
	{
		if (maps->gone_ns && now_ns - maps->gone_ns > KEEP_GONE_NS)
			forget_maps(maps);
	}
}

static void read_maps_in_process(void *argument, struct read_extra *extra)
{
	const uint32_t *host_pid = argument;
	struct mapping *items;

	extra->data_size = code_map_read(*host_pid, &items) * sizeof(*items);
	extra->data = items;
}

static void read_maps(struct job *job)
{
	struct maps_job *j = (struct maps_job *)job;
	struct read_extra extra = { .fd = -1 };
	uint32_t host_pid = job->host_pid;

	if (reader_process_run(read_maps_in_process, &host_pid, sizeof(host_pid), &extra))
		return;
	j->items = extra.data;
	j->n = extra.data_size / sizeof(*j->items);
}

/* Known mappings stay if the process has ended. */
static void maps_are_read(struct job *job)
{
	struct maps_job *j = (struct maps_job *)job;
	struct process_maps *maps = maps_find(job->host_pid);

	if (maps)
		maps->being_read = false;
	if (maps && j->n && replace_items(maps, j->items, j->n))
		maps->gone_ns = 0;
	else
		free(j->items);
	free(j);
}

static void start_reading(struct process_maps *maps, uint64_t now_ns)
{
	struct maps_job *j = maps->being_read ? NULL : calloc(1, sizeof(*j));

	if (!j)
		return;
	j->job =
		(struct job){ .host_pid = maps->host_pid, .run = read_maps, .done = maps_are_read };
	maps->being_read = readers_submit(&j->job);
	if (maps->being_read)
		maps->read_ns = now_ns;
	else
		free(j);
}

static struct process_maps *maps_of(uint32_t host_pid)
{
	struct process_maps *maps = maps_find(host_pid);
	uint64_t now = clock_monotonic_ns();

	if (maps) {
		/* exec() may have happened meanwhile */
		if (maps->gone_ns &&
		    (maps->read_ns <= maps->gone_ns || now - maps->read_ns > REREAD_NS))
			start_reading(maps, now);
		return maps;
	}
	maps = calloc(1, sizeof(*maps));
	if (!maps)
		return NULL;
	maps->host_pid = host_pid;
	HASH_ADD(hh, processes, host_pid, sizeof(maps->host_pid), maps);
	start_reading(maps, now);
	return maps;
}

/* NULL: no code at the address. */
static const char *user_symbol(struct row_context *context, struct process_maps *maps,
			       uint64_t address)
{
	struct mapping *m = code_map_find(maps->items, maps->n, address);
	uint64_t now_ns = m ? 0 : clock_monotonic_ns();
	const char *name = NULL;
	struct file *file;

	if (!m && now_ns - maps->read_ns > REREAD_NS)
		start_reading(maps, now_ns);
	if (!m && maps->being_read)
		row_waits_for(context, maps->host_pid);
	if (!m)
		return maps->n || (maps->read_ns && !maps->being_read) ? NULL : unread_text;
	if (!m->file_id.ino)
		return m->name;
	if (!file_of(context, maps->host_pid, m, &file))
		return unread_text;
	if (file)
		name = file_symbol(&file->symbols, address - m->low + m->offset);
	return name ? name : m->name;
}

/* ---- rows ---- */

void symbols_next_row(void)
{
	row_number++;
	row_ns = clock_monotonic_ns();
	free_retired();
	make_room();
}

size_t symbols_user_stack(struct row_context *context, uint32_t host_pid, const __u64 *addresses,
			  size_t max, const char **ret)
{
	struct process_maps *maps;
	size_t n = 0;

	if (!max || !addresses[0])
		return 0;
	maps = maps_of(host_pid);
	for (; n < max && addresses[n]; n++) {
		/* all frames but the leaf hold return addresses */
		ret[n] = maps ? user_symbol(context, maps, addresses[n] - (n > 0)) : NULL;
		/* without frame pointers the values are arbitrary */
		if (!ret[n] && n && maps && maps->n)
			break;
		if (!ret[n])
			ret[n] = "[unknown]";
		context->unread |= ret[n] == unread_text;
	}
	return n;
}

const char *symbols_kernel(uint64_t address)
{
	const char *name = symbol_table_find(&kernel_symbols, address);

	return name ? name : "[kernel]";
}

void symbols_process_appeared(uint32_t host_pid)
{
	symbols_process_gone(host_pid); /* of the program before exec() */
	make_room();
	maps_of(host_pid);
}

void symbols_process_gone(uint32_t host_pid)
{
	uint64_t now = clock_monotonic_ns();
	struct process_maps *maps;

	free_retired(); /* no row is in progress, and the next may be long off */
	forget_gone(now);
	maps = maps_find(host_pid);
	if (maps)
		maps->gone_ns = now;
}

void symbols_init(void)
{
	symbol_table_read_kernel(&kernel_symbols);
}

void symbols_done(void)
{
	struct file *file, *next;

	forget_processes();
	free_retired();
	HASH_ITER(hh, files, file, next)
	file_free(file);
	symbol_table_free(&kernel_symbols);
}
