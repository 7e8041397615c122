// SPDX-License-Identifier: Apache-2.0
/* A synthetic interpreter state in this process's memory. See interpreter.h. */
#include "interpreter.h"

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "host/file_identity.h"
#include "process/process_table.h"

/* Objects in the layout of 3.9 (cpython/objects.c); other state at the offsets below. */
struct object {
	uint64_t references;
	const struct type *type;
};
struct type {
	struct object head;
	char other[288 - sizeof(struct object)];
	uint64_t dictoffset;
};
struct text {
	struct object head;
	uint64_t length, hash;
	uint32_t state, pad;
	char data[128];
};
struct number {
	struct object head;
	uint64_t n_digits;
	uint32_t digits[2]; /* 30 bits each */
};
struct bytes {
	struct object head;
	uint64_t size, hash;
	uint8_t data[16];
};
enum { MAX_ITEMS = 16 };
struct keys {
	uint64_t references, size, lookup, usable, n;
	uint8_t indices[MAX_ITEMS];
	struct {
		uint64_t hash;
		const void *key, *value;
	} items[MAX_ITEMS];
};
struct dict {
	struct object head;
	uint64_t used, version;
	struct keys *keys;
	uint64_t values;
	struct keys own_keys;
};
struct instance { /* instance of a class or module */
	struct object head;
	struct dict *attributes;
};
struct code {
	struct object head;
	uint32_t firstlineno, pad;
	const struct text *filename, *name;
	const struct bytes *lines;
};
struct interp {
	const struct interp *next;
	const struct tstate *threads;
	const struct dict *modules;
};
struct tstate {
	const struct interp *interp;
};
struct runtime {
	const struct interp *head;
};

static const struct python_offsets offsets = {
	.major = 3,
	.minor = 9,
	.ip_kind = PYTHON_IP_BYTES,
	.lines_kind = PYTHON_LINES_LNOTAB,
	.frame_owner_internal = INTERPRETER_OWN_FRAME,
	.runtime_interpreters_head = offsetof(struct runtime, head),
	.interp_next = offsetof(struct interp, next),
	.interp_threads_head = offsetof(struct interp, threads),
	.interp_modules = offsetof(struct interp, modules),
	.tstate_interp = offsetof(struct tstate, interp),
	.code_filename = offsetof(struct code, filename),
	.code_name = offsetof(struct code, name),
	.code_firstlineno = offsetof(struct code, firstlineno),
	.code_lines = offsetof(struct code, lines),
	.unicode_length = offsetof(struct text, length),
	.unicode_state = offsetof(struct text, state),
	.unicode_ascii_data = offsetof(struct text, data),
	.unicode_compact_data = offsetof(struct text, data),
	.bytes_size = offsetof(struct bytes, size),
	.bytes_data = offsetof(struct bytes, data),
};

static struct type plain_type = { .head = { 1, NULL } };
static struct type class_with_dict = { .head = { 1, NULL },
				       .dictoffset = offsetof(struct instance, attributes) };

/* ---- objects: never freed, since addresses must not be reused ---- */

static void *new_object(size_t size, const struct type *type)
{
	static _Alignas(16) char memory[256 << 10];
	static size_t used;
	struct object *object = (struct object *)(memory + used);

	used += (size + 15) / 16 * 16;
	if (used > sizeof(memory))
		abort();
	*object = (struct object){ 1, type };
	return object;
}

static const struct text *new_text(const char *text)
{
	enum { KIND_1 = 1 << 2, COMPACT = 1 << 5, ASCII = 1 << 6 };
	struct text *t = new_object(sizeof(*t), &plain_type);
	size_t length = strlen(text);

	if (length > sizeof(t->data))
		abort();
	t->length = length;
	t->hash = length + 1;
	t->state = KIND_1 | COMPACT | ASCII;
	memcpy(t->data, text, length);
	return t;
}

static const struct number *new_number(uint32_t value)
{
	struct number *n = new_object(sizeof(*n), &plain_type);

	n->n_digits = 1;
	n->digits[0] = value;
	return n;
}

static struct dict *new_dict(void)
{
	struct dict *d = new_object(sizeof(*d), &plain_type);

	d->keys = &d->own_keys;
	d->keys->size = MAX_ITEMS;
	return d;
}

static void add(struct dict *d, const void *key, uint64_t hash, const void *value)
{
	if (d->keys->n == MAX_ITEMS)
		abort();
	d->keys->items[d->keys->n].hash = hash;
	d->keys->items[d->keys->n].key = key;
	d->keys->items[d->keys->n++].value = value;
	d->used++;
}

static struct instance *new_instance(void)
{
	struct instance *i = new_object(sizeof(*i), &class_with_dict);

	i->attributes = new_dict();
	return i;
}

/* ---- the interpreter ---- */

static struct dict *active;
static const struct text *name_key, *native_id_key; /* interned, like names in code */
static struct interp interp;
static struct tstate tstate;
static struct runtime runtime;

static void build(void)
{
	struct instance *threading = new_instance();
	struct dict *modules = new_dict();

	active = new_dict();
	name_key = new_text("_name");
	native_id_key = new_text("_native_id");
	add(threading->attributes, new_text("_active"), 1, active);
	add(modules, new_text("threading"), 1, threading);
	interp = (struct interp){ .threads = &tstate, .modules = modules };
	tstate.interp = &interp;
	runtime.head = &interp;
}

void interpreter_begin(void)
{
	extern const char __executable_start[]; /* defined by the linker */
	static struct python_binary binary = { .path = "/usr/bin/python3.9" };
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct file_identity identity;

	if (fd < 0 || file_identify(fd, 0, &identity))
		abort();
	close(fd);
	build();
	binary.offsets = offsets;
	binary.image.runtime_va = (uint64_t)((const char *)&runtime - __executable_start);
	process_add((uint32_t)getpid(),
		    &(struct binary_file){
			    .binary = &binary, .dev = identity.dev, .ino = identity.ino },
		    NULL);
}

void interpreter_refuse(uint32_t host_pid)
{
	struct why why;

	why_fail(&why, ENOTSUP, "it shall not be read");
	process_add(host_pid, &(struct binary_file){ 0 }, &why);
}

void interpreter_end(void)
{
	struct process *process, *next;

	HASH_ITER(hh, process_table(), process, next)
	process_end(process);
}

void interpreter_add_thread(uint64_t ident, uint32_t native_id, const char *name)
{
	struct instance *thread = new_instance();

	add(thread->attributes, name_key, 1, new_text(name));
	add(thread->attributes, native_id_key, 2, new_number(native_id));
	add(active, new_number(1), ident, thread);
}

/* The fingerprint as computed in BPF, compared by src/cpython/code.c. */
static uint32_t check_of(const struct code *code)
{
	struct python_code_fingerprint marks = {
		.type = (uintptr_t)code->head.type,
		.filename = (uintptr_t)code->filename,
		.name = (uintptr_t)code->name,
		.lines = (uintptr_t)code->lines,
		.firstlineno = code->firstlineno,
		.filename_length = code->filename->length,
		.filename_hash = code->filename->hash,
		.name_length = code->name->length,
		.name_hash = code->name->hash,
		.lines_size = code->lines->size,
	};

	memcpy(&marks.lines_begin, code->lines->data, sizeof(marks.lines_begin));
	return python_code_check(&marks);
}

struct python_frame interpreter_call(const char *function, const char *file, uint32_t line)
{
	/* pairs: code bytes, line increment */
	static const uint8_t table[] = { 4, 1, 2, 1, 2, 1 };
	struct code *code = new_object(sizeof(*code), &plain_type);
	struct bytes *lines = new_object(sizeof(*lines), &plain_type);

	lines->size = sizeof(table);
	memcpy(lines->data, table, sizeof(table));
	code->firstlineno = line;
	code->filename = new_text(file);
	code->name = new_text(function);
	code->lines = lines;
	return (struct python_frame){ .code = (uintptr_t)code, .ip = 6, .check = check_of(code) };
}

void interpreter_drop_code(const struct python_frame *frame)
{
	((struct code *)(uintptr_t)frame->code)->head.references = 0;
}
