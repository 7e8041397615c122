// SPDX-License-Identifier: Apache-2.0
/* Names by address, with what it takes to remember files and processes. See symbols.h. */
#include "probe/symbols.h"

#include <string.h>
#include <uthash.h>

#include "probe/binaries.h"
#include "probe/clock.h"
#include "probe/elf_file.h"
#include "probe/proc.h"
#include "probe/symbol_table.h"

enum {
	MAX_FILES_BYTES = 12 << 20, /* of all symbol tables of files together */
	MAX_PROCESSES = 512,
	MAX_MAPPINGS = 4096, /* executable ones, of one process */
	MAX_LINES = 65536,
	LINE_MAX_BYTES = 4096 + 128,
};
/* A process that jumps about outside of its files must not have its maps read all the time. */
static const uint64_t REREAD_NS = NSEC_PER_SEC;
/* Sums and events of a process are named after its end. */
static const uint64_t KEEP_GONE_NS = 30 * NSEC_PER_SEC;

/* Where a file lies, as /proc/PID/maps says it; that is not what stat() says on every file system.
 */
struct place {
	uint32_t major, minor;
	uint64_t ino;
};

struct file {
	struct file_identity identity;
	struct symbol_table table;
	struct elf_segment loads[ELF_MAX_SEGMENTS];
	size_t n_loads;
	char name[64]; /* "[libc.so.6]" */
	struct place place;
	uint64_t used;	   /* number of the last row that used it */
	UT_hash_handle hh; /* in order of use, the oldest first */
};

struct mapping {
	uint64_t low, high, offset;
	struct file_identity identity; /* .ino 0: not known yet */
	struct place place;
	char name[64];
};

struct process_maps {
	uint32_t host_pid;
	uint64_t read_ns;
	uint64_t gone_ns; /* it ended then, or became another program; 0: not known to have */
	struct mapping *items;
	size_t n;
	struct process_maps *next_retired;
	UT_hash_handle hh;
};

static struct symbol_table kernel;
static struct file *files;
static struct process_maps *processes;
static struct process_maps *retired; /* not in use any more, but names in it may be */
static size_t files_bytes;
static uint64_t row; /* the running one's number */

/* ---- files ---- */

static void file_free(struct file *file)
{
	HASH_DEL(files, file);
	files_bytes -= symbol_table_bytes(&file->table) + sizeof(*file);
	symbol_table_free(&file->table);
	free(file);
}

/* Not those whose names were handed out for the running row. */
static void make_room(void)
{
	struct file *file, *next;

	HASH_ITER(hh, files, file, next)
	{
		if (files_bytes <= MAX_FILES_BYTES)
			return;
		if (file->used != row)
			file_free(file);
	}
}

static void read_file(struct file *file, int fd, uint32_t host_pid)
{
	struct elf_file elf;

	if (elf_file_open(fd, &elf, NULL))
		return;
	memcpy(file->loads, elf.loads, sizeof(elf.loads));
	file->n_loads = elf.n_loads;
	elf_file_close(&elf);
	symbol_table_read_elf(&file->table, fd, host_pid);
}

/* Takes no part of `fd` over. The file may be anything: then it just has no symbols. */
static struct file *file_new(const struct file_identity *identity, int fd, uint32_t host_pid,
			     const char *name)
{
	struct file *file = calloc(1, sizeof(*file));

	if (!file)
		return NULL;
	file->identity = *identity;
	snprintf(file->name, sizeof(file->name), "%s", name);
	read_file(file, fd, host_pid);
	HASH_ADD(hh, files, identity, sizeof(file->identity), file);
	files_bytes += symbol_table_bytes(&file->table) + sizeof(*file);
	return file;
}

static struct file *file_find(const struct file_identity *identity)
{
	struct file *file;

	HASH_FIND(hh, files, identity, sizeof(*identity), file);
	return file;
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

static struct file *file_of(uint32_t host_pid, struct mapping *m)
{
	struct file *file = m->identity.ino ? file_find(&m->identity) : NULL;

	if (!file) {
		AUTO_CLOSE int fd = proc_open_mapping(host_pid, m->low, m->high, NULL);
		struct stat st;

		if (fd < 0) {
			file = file_in_place(m);
		} else if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
			file_identity_of(fd, &st, &m->identity);
			file = file_find(&m->identity);
			if (!file)
				file = file_new(&m->identity, fd, host_pid, m->name);
		}
		if (!file)
			return NULL;
		file->place = m->place;
	}
	if (file->used != row) { /* to the end of the list */
		HASH_DEL(files, file);
		HASH_ADD(hh, files, identity, sizeof(file->identity), file);
		file->used = row;
	}
	return file;
}

static const char *file_symbol(const struct file *file, uint64_t offset)
{
	for (size_t i = 0; i < file->n_loads; i++) {
		const struct elf_segment *s = &file->loads[i];

		if (offset >= s->file_offset && offset - s->file_offset < s->file_size)
			return symbol_table_find(&file->table, s->va + offset - s->file_offset);
	}
	return NULL;
}

/* ---- processes ---- */

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

/* "55d0-55d8 r-xp 00001000 fd:01 1234   /usr/lib/libc.so.6"; false: no code. */
static bool parse_mapping(char *line, struct mapping *ret)
{
	unsigned long long low, high, offset, ino;
	uint32_t major, minor;
	char permissions[8], *path = strpbrk(line, "/[");
	const char *base;

	if (sscanf(line, "%llx-%llx %7s %llx %x:%x %llu", &low, &high, permissions, &offset, &major,
		   &minor, &ino) != 7 ||
	    permissions[2] != 'x')
		return false;
	*ret = (struct mapping){
		.low = low, .high = high, .offset = offset, .place = { major, minor, ino }
	};
	if (!path) { /* made at run time */
		snprintf(ret->name, sizeof(ret->name), "[anonymous]");
		return true;
	}
	path[strcspn(path, "\n")] = 0;
	base = strrchr(path, '/');
	if (base)
		snprintf(ret->name, sizeof(ret->name), "[%.60s]", base + 1);
	else /* [vdso] */
		snprintf(ret->name, sizeof(ret->name), "%.60s", path);
	return true;
}

/* What was known stays when the process is gone. */
static void read_maps(struct process_maps *maps)
{
	struct mapping mapping, *items = NULL, *grown;
	AUTO_FCLOSE FILE *f = NULL;
	char line[LINE_MAX_BYTES], name[64];
	size_t n = 0;

	maps->read_ns = clock_monotonic_ns();
	snprintf(name, sizeof(name), "/proc/%u/maps", maps->host_pid);
	f = fopen(name, "re");
	for (int i = 0; f && i < MAX_LINES && n < MAX_MAPPINGS && fgets(line, sizeof(line), f);
	     i++) {
		if (!parse_mapping(line, &mapping))
			continue;
		grown = reallocarray(items, n + 1, sizeof(*grown));
		if (!grown)
			break;
		items = grown;
		items[n++] = mapping;
	}
	if (n && replace_items(maps, items, n))
		maps->gone_ns = 0;
	else
		free(items);
}

static void forget_gone(uint64_t now_ns)
{
	struct process_maps *maps, *next;

	HASH_ITER(hh, processes, maps, next)
	{
		if (maps->gone_ns && now_ns - maps->gone_ns > KEEP_GONE_NS)
			forget_maps(maps);
	}
}

static struct process_maps *maps_of(uint32_t host_pid)
{
	struct process_maps *maps;
	uint64_t now = clock_monotonic_ns();

	HASH_FIND(hh, processes, &host_pid, sizeof(host_pid), maps);
	if (maps) {
		/* another program may be there by now */
		if (maps->gone_ns &&
		    (maps->read_ns <= maps->gone_ns || now - maps->read_ns > REREAD_NS))
			read_maps(maps);
		return maps;
	}
	if (HASH_COUNT(processes) >= MAX_PROCESSES)
		forget_processes();
	maps = calloc(1, sizeof(*maps));
	if (!maps)
		return NULL;
	maps->host_pid = host_pid;
	read_maps(maps);
	HASH_ADD(hh, processes, host_pid, sizeof(maps->host_pid), maps);
	return maps;
}

static struct mapping *find_mapping(struct process_maps *maps, uint64_t address)
{
	size_t low = 0, high = maps->n;

	while (low < high) { /* the kernel lists them in order */
		size_t middle = low + (high - low) / 2;
		struct mapping *m = &maps->items[middle];

		if (address < m->low)
			high = middle;
		else if (address >= m->high)
			low = middle + 1;
		else
			return m;
	}
	return NULL;
}

/* NULL: there is no code. */
static const char *user_symbol(struct process_maps *maps, uint64_t address)
{
	struct mapping *m = find_mapping(maps, address);
	const char *name = NULL;
	struct file *file;

	if (!m && clock_monotonic_ns() - maps->read_ns > REREAD_NS) {
		read_maps(maps);
		m = find_mapping(maps, address);
	}
	if (!m)
		return NULL;
	file = file_of(maps->host_pid, m);
	if (file)
		name = file_symbol(file, address - m->low + m->offset);
	return name ? name : m->name;
}

/* ---- rows ---- */

void symbols_next_row(void)
{
	row++;
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
	maps_of(host_pid);
}

void symbols_process_gone(uint32_t host_pid)
{
	uint64_t now = clock_monotonic_ns();
	struct process_maps *maps;

	free_retired(); /* no row is being made here, and there may be none for long */
	forget_gone(now);
	HASH_FIND(hh, processes, &host_pid, sizeof(host_pid), maps);
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
