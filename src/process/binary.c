// SPDX-License-Identifier: Apache-2.0
/* A Python binary. See binary.h. */
#include "process/binary.h"

struct python_live_location binary_live_location(const struct binary_file *file)
{
	return (struct python_live_location){
		.dev = file->dev,
		.ino = file->ino,
		.load_va = file->binary->image.load_va,
		.runtime_va = file->binary->image.runtime_va,
		.offsets = file->binary->offsets,
	};
}

struct readable_file binary_readable(const struct python_binary *binary)
{
	return (struct readable_file){
		.path = binary->attach_path,
		.fd = binary->attach_fd ? binary->attach_fd : -1,
	};
}
