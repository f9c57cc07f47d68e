/*
 * tracer PID: whether this process may trace its own child, and then that process. One line for each: "attached", or the kernel's
 * reason. That it may trace its child shows that nothing forbids ptrace as such.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static void trace(const char *name, pid_t pid)
{
	if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) != 0) {
		printf("%s: %s\n", name, strerror(errno));
		return;
	}
	waitpid(pid, NULL, __WALL);
	ptrace(PTRACE_DETACH, pid, NULL, NULL);
	printf("%s: attached\n", name);
}

int main(int argc, char **argv)
{
	pid_t child;

	if (argc != 2 || atoi(argv[1]) <= 0) {
		fputs("usage: tracer PID\n", stderr);
		return 64;
	}
	child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	trace("child", child);
	kill(child, SIGKILL);
	trace(argv[1], atoi(argv[1]));
	return 0;
}
