// SPDX-License-Identifier: Apache-2.0
/*
 * A library with threads of its own, for off_cpu_native.py and off_cpu_native_end.py: two wait for
 * work, on a condition and on a semaphore; one waits for a mutex that another one holds for 40 ms.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CONDITION, SEMAPHORE, MUTEX, HOLDER, THREADS };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore, begun;
static int work, tids[THREADS];

static void begin(int thread)
{
	tids[thread] = (int)syscall(SYS_gettid);
	sem_post(&begun);
}

static void *wait_for_condition(void *unused)
{
	begin(CONDITION);
	pthread_mutex_lock(&mutex);
	for (;; work = 0) {
		while (!work)
			pthread_cond_wait(&condition, &mutex);
	}
	return unused;
}

static void *wait_for_semaphore(void *unused)
{
	begin(SEMAPHORE);
	for (;;)
		sem_wait(&semaphore);
	return unused;
}

static void *hold(void *unused)
{
	begin(HOLDER);
	for (;; usleep(5000)) {
		pthread_mutex_lock(&held);
		usleep(40000);
		pthread_mutex_unlock(&held);
	}
	return unused;
}

static void *contend(void *unused)
{
	begin(MUTEX);
	for (;; usleep(20000)) {
		pthread_mutex_lock(&held);
		pthread_mutex_unlock(&held);
	}
	return unused;
}

void native_start(void)
{
	static void *(*const run[THREADS])(void *) = {
		[CONDITION] = wait_for_condition,
		[SEMAPHORE] = wait_for_semaphore,
		[MUTEX] = contend,
		[HOLDER] = hold,
	};
	pthread_t thread;

	sem_init(&semaphore, 0, 0);
	sem_init(&begun, 0, 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_create(&thread, NULL, run[i], NULL);
		sem_wait(&begun);
	}
}

int native_tid(int thread)
{
	return tids[thread];
}

void native_give(void)
{
	pthread_mutex_lock(&mutex);
	work = 1;
	pthread_cond_signal(&condition);
	pthread_mutex_unlock(&mutex);
	sem_post(&semaphore);
}

/* After the interpreter's end, if the process ends by exit(). */
__attribute__((destructor)) static void wake_all(void)
{
	native_give();
	usleep(100000);
}
