// SPDX-License-Identifier: Apache-2.0
/* Symbols of mapped files, cached. See code_files.h. */
#include "rows/code_files.h"

#include <string.h>

#include "base/hash.h"
#include "base/clock.h"
#include "elf/elf_file.h"
#include "elf/symbol_table.h"
#include "host/proc.h"
#include "workers/reader_process.h"
#include "workers/readers.h"

enum { MAX_FILES_BYTES = 12 << 20 }; /* all symbol tables */
/* Unused files (old releases) are evicted and can be read again. */
static const uint64_t KEEP_FILE_NS = 120 * NSEC_PER_SEC;

/* Symbols of a file. */
struct file_symbols {
	struct symbol_table table;
	struct elf_segment loads[ELF_MAX_SEGMENTS];
	size_t n_loads;
};

struct code_file {
	struct file_identity identity;
	struct file_symbols symbols;
	char name[64]; /* "[libc.so.6]" */
	struct file_id file_id;
	uint32_t read_by;  /* process through which a job reads the file; 0: done */
	uint64_t used;	   /* number of the last row using the file */
	uint64_t used_ns;  /* time of the last use */
	UT_hash_handle hh; /* in LRU order, oldest first */
};

struct file_job {
	struct job job;
	struct mapping of;
	struct file_identity identity; /* .ino 0: it cannot be opened */
	struct file_symbols symbols;
};

static struct code_file *files;
static size_t files_bytes;
static uint64_t row_number; /* number of the current row */
static uint64_t row_ns;	    /* start time of the current row */

static struct code_file *file_find(const struct file_identity *identity)
{
	struct code_file *file;

	HASH_FIND(hh, files, identity, sizeof(*identity), file);
	return file;
}

static void file_free(struct code_file *file)
{
	HASH_DEL(files, file);
	files_bytes -= symbol_table_bytes(&file->symbols.table) + sizeof(*file);
	symbol_table_free(&file->symbols.table);
	free(file);
}

/* ---- jobs ---- */

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
	struct process_maps *maps = code_maps_find(j->job.host_pid);
	struct mapping *m = maps ? code_map_find(maps->items, maps->n, j->of.low) : NULL;

	return m && m->file_id.ino == j->of.file_id.ino ? m : NULL;
}

static void on_identified(struct job *job)
{
	struct file_job *j = (struct file_job *)job;
	struct code_file *file = file_find(&j->identity);
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
	struct code_file *file = file_find(&j->of.identity);
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
static struct code_file *file_new(uint32_t host_pid, const struct mapping *m)
{
	struct code_file *file = calloc(1, sizeof(*file));

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

void code_files_make_room(void)
{
	struct code_file *file, *next;

	HASH_ITER(hh, files, file, next)
	{
		if (files_bytes <= MAX_FILES_BYTES && row_ns - file->used_ns < KEEP_FILE_NS)
			return;
		if (file->used != row_number && !file->read_by)
			file_free(file);
	}
}

/* For an ended process: the file as known from another process with the same mapping. */
static struct code_file *find_file(const struct mapping *m)
{
	for (struct code_file *file = files; file; file = file->hh.next) {
		if (m->file_id.ino && file->file_id.ino == m->file_id.ino &&
		    file->file_id.major == m->file_id.major &&
		    file->file_id.minor == m->file_id.minor && !strcmp(file->name, m->name))
			return file;
	}
	return NULL;
}

static void mark_used(struct code_file *file)
{
	if (file->used != row_number) { /* most recently used */
		HASH_DEL(files, file);
		HASH_ADD(hh, files, identity, sizeof(file->identity), file);
		file->used = row_number;
		file->used_ns = row_ns;
	}
}

bool code_file_of(struct row_context *context, uint32_t host_pid, struct mapping *m,
		  struct code_file **ret)
{
	struct code_file *file = m->identity.ino ? file_find(&m->identity) : NULL;

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

const char *code_file_symbol(const struct code_file *file, uint64_t offset)
{
	const struct file_symbols *symbols = &file->symbols;

	for (size_t i = 0; i < symbols->n_loads; i++) {
		const struct elf_segment *s = &symbols->loads[i];

		if (offset >= s->file_offset && offset - s->file_offset < s->file_size)
			return symbol_table_find(&symbols->table, s->va + offset - s->file_offset);
	}
	return NULL;
}

void code_files_next_row(void)
{
	row_number++;
	row_ns = clock_monotonic_ns();
	code_files_make_room();
}

void code_files_done(void)
{
	struct code_file *file, *next;

	HASH_ITER(hh, files, file, next)
	file_free(file);
}
