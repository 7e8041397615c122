// SPDX-License-Identifier: Apache-2.0
/* Deflate by ISA-L or zlib. See deflate.h. */
#include "pipeline/deflate.h"

#include <dlfcn.h>
#include <errno.h>
#include <isa-l/igzip_lib.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/util.h"

enum { ROOM_BYTES = 16 << 10 }; /* the output grows on demand: the worst case doubles the memory */

bool deflate_zlib_only;

/* ---- zlib ---- */

static int deflate_by_zlib(const struct buffer *text, bool last, struct buffer *out)
{
	z_stream z = { .next_in = (Bytef *)text->data, .avail_in = (uInt)text->len };
	int err = 0, status = Z_OK;

	/* -15: largest window, no header; level 1: CPU costs more than bytes here */
	if (deflateInit2(&z, 1, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	do {
		err = buffer_reserve(out, ROOM_BYTES);
		if (err)
			break;
		z.next_out = (Bytef *)out->data + out->len;
		z.avail_out = (uInt)(out->capacity - out->len);
		status = deflate(&z, last ? Z_FINISH : Z_FULL_FLUSH);
		out->len = out->capacity - z.avail_out;
	} while (status == Z_OK && !z.avail_out);
	deflateEnd(&z);
	if (status == Z_BUF_ERROR && !last)
		status = Z_OK; /* the flush filled the buffer to its end: nothing was left */
	if (!err && status != (last ? Z_STREAM_END : Z_OK))
		err = -ENOMEM;
	return err;
}

/* ---- ISA-L: loaded if it is there, as not each distribution has it ---- */

static struct {
	void (*init)(struct isal_zstream *stream);
	int (*deflate)(struct isal_zstream *stream);
	uint32_t (*crc32)(uint32_t init_crc, const unsigned char *buf, uint64_t len);
} isal;

/*
 * The state of a compression, kept for the next: freshly mapped for each piece of a batch, its
 * pages were a fifth of the agent's CPU time. Two threads compress at the same time at most,
 * rarely.
 */
struct isal_work {
	struct isal_zstream stream;
	uint8_t level[ISAL_DEF_LVL1_SMALL];
};

static struct isal_work *_Atomic spare_work;

static struct isal_work *take_work(void)
{
	struct isal_work *work = atomic_exchange(&spare_work, NULL);

	return work ? work : malloc(sizeof(*work));
}

static void give_work_back(struct isal_work *work)
{
	free(atomic_exchange(&spare_work, work));
}

static int run_isal(struct isal_work *work, const struct buffer *text, bool last,
		    struct buffer *out)
{
	struct isal_zstream *z = &work->stream;
	int err;

	isal.init(z);
	z->level = 1;
	z->level_buf = work->level;
	z->level_buf_size = sizeof(work->level);
	z->flush = last ? NO_FLUSH : FULL_FLUSH;
	z->end_of_stream = last;
	z->next_in = (uint8_t *)text->data;
	z->avail_in = (uint32_t)text->len;
	do {
		err = buffer_reserve(out, ROOM_BYTES);
		if (err)
			return err;
		z->next_out = (uint8_t *)out->data + out->len;
		z->avail_out = (uint32_t)(out->capacity - out->len);
		if (isal.deflate(z) != COMP_OK)
			return -ENOMEM;
		out->len = out->capacity - z->avail_out;
	} while (last ? z->internal_state.state != ZSTATE_END : !z->avail_out);
	return 0;
}

static int deflate_by_isal(const struct buffer *text, bool last, struct buffer *out)
{
	struct isal_work *work = take_work();
	int err;

	if (!work)
		return -ENOMEM;
	err = run_isal(work, text, last, out);
	give_work_back(work);
	return err;
}

static void *function_of(void *library, const char *name)
{
	return library ? dlsym(library, name) : NULL;
}

/* Does this build of the library do what its header says? Two texts, read back by zlib. */
static bool isal_is_right(void)
{
	char bytes[2048], back[sizeof(bytes) * 2];
	struct buffer text = { .data = bytes, .len = sizeof(bytes) }, out = { 0 };
	z_stream z = { .next_out = (Bytef *)back, .avail_out = sizeof(back) };
	bool right;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(i * i >> 4);
	right = !deflate_by_isal(&text, false, &out) && !deflate_by_isal(&text, true, &out) &&
		isal.crc32(0, (const unsigned char *)bytes, sizeof(bytes)) ==
			crc32(0, (const Bytef *)bytes, sizeof(bytes)) &&
		inflateInit2(&z, -15) == Z_OK;
	if (right) {
		z.next_in = (Bytef *)out.data;
		z.avail_in = (uInt)out.len;
		right = inflate(&z, Z_FINISH) == Z_STREAM_END && !z.avail_in && !z.avail_out &&
			!memcmp(back, bytes, sizeof(bytes)) &&
			!memcmp(back + sizeof(bytes), bytes, sizeof(bytes));
		inflateEnd(&z);
	}
	buffer_free(&out);
	return right;
}

static bool isal_is_usable;

static void look_for_isal(void)
{
	void *library = dlopen("libisal.so.2", RTLD_NOW | RTLD_LOCAL);

	isal.init = function_of(library, "isal_deflate_init");
	isal.deflate = function_of(library, "isal_deflate");
	isal.crc32 = function_of(library, "crc32_gzip_refl");
	isal_is_usable = isal.init && isal.deflate && isal.crc32 && isal_is_right();
}

static bool has_isal(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, look_for_isal);
	return isal_is_usable && !deflate_zlib_only;
}

/* ---- both ---- */

int deflate_text(const struct buffer *text, bool last, struct buffer *out)
{
	return has_isal() ? deflate_by_isal(text, last, out) : deflate_by_zlib(text, last, out);
}

uint32_t deflate_crc32(uint32_t crc, const void *bytes, size_t n)
{
	return has_isal() ? isal.crc32(crc, bytes, n) : (uint32_t)crc32(crc, bytes, (uInt)n);
}

const char *deflate_library(void)
{
	return has_isal() ? "ISA-L" : "zlib";
}
