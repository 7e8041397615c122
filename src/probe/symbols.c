// SPDX-License-Identifier: Apache-2.0
/* Names by address, with what it takes to remember files and processes. See symbols.h. */
#include "probe/symbols.h"

#include <string.h>
#include <uthash.h>

#include "probe/clock.h"
#include "probe/code_map.h"
#include "probe/elf_file.h"
#include "probe/proc.h"
#include "probe/symbol_table.h"
#include "readers.h"

enum {
	MAX_FILES_BYTES = 12 << 20, /* of all symbol tables of files together */
	MAX_PROCESSES = 512,
};
/* A process that jumps about outside of its files must not have its maps read all the time. */
static const uint64_t REREAD_NS = NSEC_PER_SEC;
/* Sums and events of a process are named after its end. */
static const uint64_t KEEP_GONE_NS = 30 * NSEC_PER_SEC;
/* A file that is not asked for any more, as an old release's: it can be read again. */
static const uint64_t KEEP_FILE_NS = 120 * NSEC_PER_SEC;

/* What is read of a file. */
struct file_symbols {
	struct symbol_table table;
	struct elf_segment loads[ELF_MAX_SEGMENTS];
	size_t n_loads;
};

struct file {
	struct file_identity identity;
	struct file_symbols symbols;
	char name[64]; /* "[libc.so.6]" */
	struct place place;
	uint32_t read_by;  /* through this process a job reads it; 0: it is read */
	uint64_t used;	   /* number of the last row that used it */
	uint64_t used_ns;  /* when */
	UT_hash_handle hh; /* in order of use, the oldest first */
};

struct process_maps {
	uint32_t host_pid;
	uint64_t read_ns;
	uint64_t gone_ns; /* it ended then, or became another program; 0: not known to have */
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

static const char unread[] = "<unread>";

static struct symbol_table kernel;
static struct file *files;
static struct process_maps *processes;
static struct process_maps *retired; /* not in use any more, but names in it may be */
static size_t files_bytes;
static uint64_t row;	/* the running one's number */
static uint64_t row_ns; /* and when it began */

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

static void retire(struct process_maps *maps)
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
	retire(maps);
}

/* The new mappings take the place of the old ones. False: out of memory, and nothing has changed.
 */
static bool replace_items(struct process_maps *maps, struct mapping *items, size_t n)
{
	struct process_maps *old = maps->items ? calloc(1, sizeof(*old)) : NULL;

	if (maps->items && !old)
		return false;
	if (old) {
		old->items = maps->items;
		retire(old);
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

/* ---- jobs: which file a mapping is of, and what is in the file ---- */

static int open_file(struct file_job *j)
{
	int fd = proc_open_mapping(j->job.host_pid, j->of.low, j->of.high, NULL);

	if (fd >= 0 && file_identify(fd, j->job.host_pid, &j->identity))
		j->identity = (struct file_identity){ 0 };
	return fd;
}

static void identify(struct job *job)
{
	AUTO_CLOSE int fd = open_file((struct file_job *)job);

	(void)fd;
}

/* The file may be anything: then it just has no symbols. */
static void read_file(struct job *job)
{
	struct file_job *j = (struct file_job *)job;
	AUTO_CLOSE int fd = open_file(j);
	struct elf_file elf;

	if (!j->identity.ino || elf_file_open(fd, &elf, NULL))
		return;
	memcpy(j->symbols.loads, elf.loads, sizeof(elf.loads));
	j->symbols.n_loads = elf.n_loads;
	elf_file_close(&elf);
	symbol_table_read_elf(&j->symbols.table, fd, job->host_pid);
}

static bool give_file_job(uint32_t host_pid, const struct mapping *m, void (*run)(struct job *job),
			  void (*done)(struct job *job))
{
	struct file_job *j = calloc(1, sizeof(*j));

	if (!j)
		return false;
	j->job = (struct job){ .host_pid = host_pid, .run = run, .done = done };
	j->of = *m;
	if (readers_give(&j->job))
		return true;
	free(j);
	return false;
}

/* Of the process's mappings as they are by now. */
static struct mapping *mapping_of(const struct file_job *j)
{
	struct process_maps *maps = maps_find(j->job.host_pid);
	struct mapping *m = maps ? code_map_find(maps->items, maps->n, j->of.low) : NULL;

	return m && m->place.ino == j->of.place.ino ? m : NULL;
}

static void identified(struct job *job)
{
	struct file_job *j = (struct file_job *)job;
	struct file *file = file_find(&j->identity);
	struct mapping *m = mapping_of(j);

	if (file)
		file->place = j->of.place;
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
		/* it is not there any more, or another one is: somebody else may have it */
		symbol_table_free(&j->symbols.table);
		if (m)
			m->cannot_be_opened = job->ran;
		if (file)
			file_free(file);
	}
	free(j);
}

/* The file that the mapping is of, to be read. NULL: it cannot be now. */
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
	file->place = m->place;
	file->read_by = host_pid;
	snprintf(file->name, sizeof(file->name), "%s", m->name);
	HASH_ADD(hh, files, identity, sizeof(file->identity), file);
	files_bytes += sizeof(*file);
	return file;
}

/* ---- files ---- */

/* Not those whose names were handed out for the running row. */
static void make_room(void)
{
	struct file *file, *next;

	if (HASH_COUNT(processes) >= MAX_PROCESSES)
		forget_processes();
	HASH_ITER(hh, files, file, next)
	{
		if (files_bytes <= MAX_FILES_BYTES && row_ns - file->used_ns < KEEP_FILE_NS)
			return;
		if (file->used != row && !file->read_by)
			file_free(file);
	}
}

/* For a process that is gone: the file is known from another one that had it in the same place. */
static struct file *file_in_place(const struct mapping *m)
{
	for (struct file *file = files; file; file = file->hh.next) {
		if (m->place.ino && file->place.ino == m->place.ino &&
		    file->place.major == m->place.major && file->place.minor == m->place.minor &&
		    !strcmp(file->name, m->name))
			return file;
	}
	return NULL;
}

static void use(struct file *file)
{
	if (file->used != row) { /* to the end of the list */
		HASH_DEL(files, file);
		HASH_ADD(hh, files, identity, sizeof(file->identity), file);
		file->used = row;
		file->used_ns = row_ns;
	}
}

/* False: it is not known yet. *ret NULL: there is none. */
static bool file_of(uint32_t host_pid, struct mapping *m, struct file **ret)
{
	struct file *file = m->identity.ino ? file_find(&m->identity) : NULL;

	if (!file && m->cannot_be_opened)
		file = file_in_place(m);
	else if (!file && m->identity.ino)
		file = file_new(host_pid, m);
	else if (!file && !m->being_opened)
		m->being_opened = give_file_job(host_pid, m, identify, identified);
	if (m->being_opened)
		lookup_waits(host_pid);
	if (file && file->read_by)
		lookup_waits(file->read_by);
	*ret = file;
	if (file)
		use(file);
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

static void read_maps(struct job *job)
{
	struct maps_job *j = (struct maps_job *)job;

	j->n = code_map_read(job->host_pid, &j->items);
}

/* What was known stays when the process is gone. */
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
	maps->being_read = readers_give(&j->job);
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
		/* another program may be there by now */
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

/* NULL: there is no code. */
static const char *user_symbol(struct process_maps *maps, uint64_t address)
{
	struct mapping *m = code_map_find(maps->items, maps->n, address);
	uint64_t now_ns = m ? 0 : clock_monotonic_ns();
	const char *name = NULL;
	struct file *file;

	if (!m && now_ns - maps->read_ns > REREAD_NS)
		start_reading(maps, now_ns);
	if (!m && maps->being_read)
		lookup_waits(maps->host_pid);
	if (!m)
		return maps->n || (maps->read_ns && !maps->being_read) ? NULL : unread;
	if (!m->place.ino)
		return m->name;
	if (!file_of(maps->host_pid, m, &file))
		return unread;
	if (file)
		name = file_symbol(&file->symbols, address - m->low + m->offset);
	return name ? name : m->name;
}

/* ---- rows ---- */

void symbols_next_row(void)
{
	row++;
	row_ns = clock_monotonic_ns();
	free_retired();
	make_room();
}

size_t symbols_user_stack(uint32_t host_pid, const __u64 *addresses, size_t max, const char **ret)
{
	struct process_maps *maps;
	size_t n = 0;

	if (!max || !addresses[0])
		return 0;
	maps = maps_of(host_pid);
	for (; n < max && addresses[n]; n++) {
		/* all but the leaf are where a call returns to */
		ret[n] = maps ? user_symbol(maps, addresses[n] - (n > 0)) : NULL;
		/* a program that has no frame pointers has anything in their place */
		if (!ret[n] && n && maps && maps->n)
			break;
		if (!ret[n])
			ret[n] = "[unknown]";
		lookups.unread |= ret[n] == unread;
	}
	return n;
}

const char *symbols_kernel(uint64_t address)
{
	const char *name = symbol_table_find(&kernel, address);

	return name ? name : "[kernel]";
}

void symbols_process_appeared(uint32_t host_pid)
{
	symbols_process_gone(host_pid); /* of an earlier program */
	make_room();
	maps_of(host_pid);
}

void symbols_process_gone(uint32_t host_pid)
{
	uint64_t now = clock_monotonic_ns();
	struct process_maps *maps;

	free_retired(); /* no row is being made here, and there may be none for long */
	forget_gone(now);
	maps = maps_find(host_pid);
	if (maps)
		maps->gone_ns = now;
}

void symbols_init(void)
{
	symbol_table_read_kernel(&kernel);
}

void symbols_done(void)
{
	struct file *file, *next;

	forget_processes();
	free_retired();
	HASH_ITER(hh, files, file, next)
	file_free(file);
	symbol_table_free(&kernel);
}
