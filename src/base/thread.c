// SPDX-License-Identifier: Apache-2.0
/* Threads that no other thread waits for. See thread.h. */
#include "base/thread.h"

#include <pthread.h>

int thread_start_detached(void *(*run)(void *), void *argument, size_t stack_bytes)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int err;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (stack_bytes)
		pthread_attr_setstacksize(&attributes, stack_bytes);
	err = pthread_create(&thread, &attributes, run, argument);
	pthread_attr_destroy(&attributes);
	return err;
}
