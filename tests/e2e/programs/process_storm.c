// SPDX-License-Identifier: Apache-2.0
/*
 * process_storm SECONDS RATE fork|exec: starts processes that exit at once, RATE per second (0:
 * unlimited); with exec, each executes a minimal program first. Prints the number. For tests of the
 * cost of short-lived processes.
 */
#include <elf.h>
#include <err.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* exit(0) */
#if defined(__x86_64__)
#define MACHINE EM_X86_64
static const unsigned char code[] = { 0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05 };
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
static const unsigned int code[] = { 0xd2800000, 0xd2800ba8, 0xd4000001 };
#endif
enum { BASE = 0x400000 };

struct program {
	Elf64_Ehdr head;
	Elf64_Phdr segment;
	unsigned char code[sizeof(code)];
};

static int write_program(void)
{
	struct program p = {
		.head = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
				       EV_CURRENT },
			  .e_type = ET_EXEC,
			  .e_machine = MACHINE,
			  .e_version = EV_CURRENT,
			  .e_entry = BASE + offsetof(struct program, code),
			  .e_phoff = offsetof(struct program, segment),
			  .e_ehsize = sizeof(Elf64_Ehdr),
			  .e_phentsize = sizeof(Elf64_Phdr),
			  .e_phnum = 1 },
		.segment = { .p_type = PT_LOAD,
			     .p_flags = PF_R | PF_X,
			     .p_vaddr = BASE,
			     .p_filesz = sizeof(p),
			     .p_memsz = sizeof(p),
			     .p_align = 4096 },
	};
	int fd = memfd_create("short", MFD_CLOEXEC);

	memcpy(p.code, code, sizeof(code));
	if (fd < 0 || write(fd, &p, sizeof(p)) != sizeof(p) || fchmod(fd, 0755))
		err(1, "memfd");
	return fd;
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* The child of vfork() shares this memory until exec() or exit. */
static void start_one(int fd)
{
	static char *const argv[] = { "short", NULL }, *const envp[] = { NULL };
	pid_t pid = vfork();

	if (pid == 0) {
		if (fd >= 0)
			fexecve(fd, argv, envp);
		_exit(fd >= 0);
	}
	if (pid < 0)
		err(1, "vfork");
	if (waitpid(pid, NULL, 0) != pid)
		err(1, "waitpid");
}

int main(int argc, char **argv)
{
	double begin = now(), seconds, rate;
	unsigned long n = 0;
	int fd = -1;

	if (argc != 4)
		errx(2, "usage: process_storm SECONDS RATE fork|exec");
	seconds = atof(argv[1]);
	rate = atof(argv[2]);
	if (!strcmp(argv[3], "exec"))
		fd = write_program();
	while (now() - begin < seconds) {
		if (rate > 0 && (double)n >= (now() - begin) * rate) {
			usleep(500);
			continue;
		}
		start_one(fd);
		n++;
	}
	printf("%lu\n", n);
	return 0;
}
