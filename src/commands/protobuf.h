/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing messages of protocol buffers. The formats here need only two wire types, varints and
 * length-delimited bytes (a double is the third), so no library is used. *err: the first error,
 * after which nothing is appended.
 */
#ifndef UNDERSPAN_COMMANDS_PROTOBUF_H
#define UNDERSPAN_COMMANDS_PROTOBUF_H

#include <stdint.h>

#include "base/buffer.h"

void protobuf_varint(int *err, struct buffer *to, uint64_t value);
void protobuf_number(int *err, struct buffer *to, unsigned int field, uint64_t value);
void protobuf_double(int *err, struct buffer *to, unsigned int field, double value);
void protobuf_bytes(int *err, struct buffer *to, unsigned int field, const void *bytes, size_t n);
void protobuf_text(int *err, struct buffer *to, unsigned int field, const char *text);

/* Appends a message and empties the buffer. */
void protobuf_message(int *err, struct buffer *to, unsigned int field, struct buffer *message);

#endif
