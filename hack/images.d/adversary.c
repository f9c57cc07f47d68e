/*
 * adversary ACT: what a hostile program may do with the rights of an ordinary container. It goes on until it is killed.
 *
 *   leases    takes a lease (fcntl(2), F_SETLEASE) on each file of its own control groups, ignores SIGIO, and takes it again when the
 *             kernel has broken it. Prints "leases: N" when it has all that it can get.
 *   traced    asks its parent to trace it (PTRACE_TRACEME) and stops, again and again when it runs on. To be process 1.
 *   siblings  makes processes that are its parent's children (CLONE_PARENT) and end at once. Not for process 1.
 *   stops     makes such a process, and stops and continues it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Files at the most. */
#define MOST 1024

static int held[MOST];
static int files;

static int take(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
	int file;

	(void)status;
	(void)walk;
	if (kind != FTW_F || files == MOST)
		return 0;
	file = open(path, O_RDONLY | O_NONBLOCK);
	if (file >= 0)
		held[files++] = file;
	return 0;
}

/* A lease for writing keeps all others from opening the file, one for reading only those that write. */
static int lease(int file)
{
	int kind = fcntl(file, F_GETLEASE);

	if (kind == F_WRLCK || kind == F_RDLCK)
		return 1;
	return fcntl(file, F_SETLEASE, F_WRLCK) == 0 || fcntl(file, F_SETLEASE, F_RDLCK) == 0;
}

static _Noreturn void leases(void)
{
	struct rlimit most;
	int count, number, said = 0;

	signal(SIGIO, SIG_IGN);
	getrlimit(RLIMIT_NOFILE, &most);
	most.rlim_cur = most.rlim_max;
	setrlimit(RLIMIT_NOFILE, &most);
	nftw("/sys/fs/cgroup", take, 32, FTW_PHYS);
	for (;;) {
		for (number = count = 0; number < files; number++)
			count += lease(held[number]);
		if (!said) {
			printf("leases: %d\n", count);
			fflush(stdout);
			said = 1;
		}
		usleep(500);
	}
}

static _Noreturn void traced(void)
{
	for (;;) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 && errno != EPERM)
			_exit(1);
		raise(SIGSTOP);
	}
}

static pid_t sibling(void)
{
	return syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL);
}

static _Noreturn void siblings(void)
{
	for (;;) {
		switch (sibling()) {
		case 0:
			_exit(0);
		case -1:
			if (errno != EAGAIN)
				_exit(1);
			usleep(100);
		}
	}
}

static _Noreturn void stops(void)
{
	pid_t pid = sibling();

	if (pid < 0)
		_exit(1);
	if (pid == 0)
		for (;;)
			pause();
	for (;;) {
		kill(pid, SIGSTOP);
		kill(pid, SIGCONT);
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*act)(void);
	} acts[] = {
		{ "leases", leases }, { "traced", traced }, { "siblings", siblings }, { "stops", stops },
	};
	size_t number;

	for (number = 0; argc == 2 && number < sizeof(acts) / sizeof(*acts); number++)
		if (strcmp(argv[1], acts[number].name) == 0)
			acts[number].act();
	fputs("usage: adversary leases|traced|siblings|stops\n", stderr);
	return 64;
}
