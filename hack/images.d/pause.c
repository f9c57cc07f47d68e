/*
 * The pause image's only program: it holds the pod's namespaces, reaps what is reparented to it
 * when the pod shares one pid namespace, and leaves on SIGTERM or SIGINT.
 */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

int main(void)
{
	sigset_t signals;
	int signal_number;

	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	/* Pid 1 ignores signals without a handler; blocked and waited for, they arrive. */
	sigprocmask(SIG_BLOCK, &signals, NULL);

	for (;;) {
		if (sigwait(&signals, &signal_number) != 0)
			return 1;
		if (signal_number != SIGCHLD)
			return 0;
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
}
