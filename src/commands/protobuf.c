// SPDX-License-Identifier: Apache-2.0
/* Messages of protocol buffers. See protobuf.h. */
#include "commands/protobuf.h"

enum { WIRE_VARINT = 0, WIRE_64_BITS = 1, WIRE_BYTES = 2 };

static void put(int *err, struct buffer *to, const void *bytes, size_t n)
{
	if (!*err)
		*err = buffer_append(to, bytes, n);
}

void protobuf_varint(int *err, struct buffer *to, uint64_t value)
{
	unsigned char bytes[10];
	size_t n = 0;

	do {
		bytes[n++] = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
		value >>= 7;
	} while (value);
	put(err, to, bytes, n);
}

void protobuf_number(int *err, struct buffer *to, unsigned int field, uint64_t value)
{
	protobuf_varint(err, to, field << 3 | WIRE_VARINT);
	protobuf_varint(err, to, value);
}

void protobuf_double(int *err, struct buffer *to, unsigned int field, double value)
{
	unsigned char bytes[8];
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(bits >> 8 * i);
	protobuf_varint(err, to, field << 3 | WIRE_64_BITS);
	put(err, to, bytes, sizeof(bytes));
}

void protobuf_bytes(int *err, struct buffer *to, unsigned int field, const void *bytes, size_t n)
{
	protobuf_varint(err, to, field << 3 | WIRE_BYTES);
	protobuf_varint(err, to, n);
	put(err, to, bytes, n);
}

void protobuf_text(int *err, struct buffer *to, unsigned int field, const char *text)
{
	protobuf_bytes(err, to, field, text, strlen(text));
}

void protobuf_message(int *err, struct buffer *to, unsigned int field, struct buffer *message)
{
	protobuf_bytes(err, to, field, message->data, message->len);
	message->len = 0;
}
