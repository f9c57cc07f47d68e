/*
 * pod-member: a container of a test pod that does what its flags say and records when.
 *
 * Every event is one line, "<epoch seconds>.<us> <name> <event> <code>", sent to stdout and appended
 * with a single O_APPEND write to a log that all containers of the pod share. The times say in which
 * order things happened. The order of the lines does not: a program that creates the log may wait
 * for the file system's journal, and another that begins later then writes its line first. A program
 * and not a shell script because a shell answers a signal only after its current child has ended.
 *
 * Events: Starting (exec'd), Started (start delay over), Term (stop signal, code = its number),
 * Signal (any other signal, code = its number), Exiting (code = exit code).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A deadline that never comes. */
#define NEVER LLONG_MAX

/* How often the file of --run-from is looked for, in milliseconds. */
#define LOOK_EVERY 50

static const char usage[] =
	"usage: pod-member --name NAME [options]\n"
	"  --log FILE            append the events to FILE too\n"
	"  --start-delay S       seconds from Starting to Started (0)\n"
	"  --run S[,S...]        seconds from Started to Exiting; absent: for ever\n"
	"  --run-from FILE       --run's seconds begin when FILE exists, after Started\n"
	"  --exit-code N[,N...]  exit code at the end of --run (0)\n"
	"  --term-delay S        seconds from the stop signal to Exiting (0)\n"
	"  --term-exit-code N    exit code after the stop signal (0)\n"
	"  --ignore-term         record the stop signal and go on\n"
	"  --stop-signal N       number of the stop signal (15)\n"
	"  --listen PORT         accept tcp connections on PORT, all addresses\n"
	"  --listen-after S      seconds from Starting until it does (0)\n"
	"  --ready-file FILE     create FILE\n"
	"  --ready-after S       seconds from Starting until it does (0)\n"
	"  --allocate MIB        touch that much memory at Started\n"
	"  --child               leave a daemon that ignores SIGTERM\n"
	"  --hold-stdout         hold the lock of the pipe that is stdout, from Started until it is killed\n"
	"  --print TEXT          write TEXT to stdout at Started\n"
	"  --notify TEXT         send TEXT to the socket that NOTIFY_SOCKET names\n"
	"  --notify-to PATH      to that socket instead\n"
	"  --notify-after S      seconds from Starting until it does (0)\n"
	"Seconds may have decimals. Lists hold one value per run of NAME, as counted in the log;\n"
	"the last value serves all later runs.\n";

struct settings {
	const char *name, *log, *run, *run_from, *exit_code, *ready_file, *print, *notify, *notify_to;
	double start_delay, term_delay, listen_after, ready_after, notify_after;
	int term_exit_code, ignore_term, stop_signal, port, leave_child, hold_stdout;
	size_t allocate_mib;
};

static struct settings settings = { .stop_signal = SIGTERM };
static int log_fd = -1;

static void die(const char *what)
{
	fprintf(stderr, "pod-member: %s: %s\n", what, strerror(errno));
	exit(70);
}

static void reject(const char *option, const char *value)
{
	fprintf(stderr, "pod-member: --%s: not a number: %s\n%s", option, value, usage);
	exit(64);
}

static double number(const char *option, const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end != '\0' || value < 0)
		reject(option, text);
	return value;
}

/* The value for run number `run` (from 0) in a comma separated list. */
static double list_value(const char *option, const char *list, int run)
{
	for (;;) {
		char *end;
		double value = strtod(list, &end);

		if (end == list || (*end != '\0' && *end != ',') || value < 0)
			reject(option, list);
		if (run-- == 0 || *end == '\0')
			return value;
		list = end + 1;
	}
}

static long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static struct timespec time_of_day(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now;
}

static void record_at(struct timespec at, const char *event, int code)
{
	char line[256];
	int length = snprintf(line, sizeof(line), "%lld.%06ld %s %s %d\n", (long long)at.tv_sec,
			      at.tv_nsec / 1000, settings.name, event, code);

	if (log_fd >= 0 && write(log_fd, line, length) != length)
		die(settings.log);
	/* Errors are ignored: stdout may have no reader, and only the shared log counts. */
	if (write(STDOUT_FILENO, line, length) < 0)
		return;
}

static void record(const char *event, int code)
{
	record_at(time_of_day(), event, code);
}

static _Noreturn void leave(int code)
{
	record("Exiting", code);
	exit(code);
}

/* How often this name has started before, by the shared log. */
static int earlier_runs(void)
{
	char line[256], wanted[160];
	int runs = 0;
	FILE *log = settings.log ? fopen(settings.log, "r") : NULL;

	if (!log)
		return 0;
	snprintf(wanted, sizeof(wanted), " %s Starting ", settings.name);
	while (fgets(line, sizeof(line), log))
		if (strstr(line, wanted))
			runs++;
	fclose(log);
	return runs;
}

static int listen_on(int port)
{
	int one = 1;
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 16) < 0)
		die("--listen");
	return fd;
}

static void touch_memory(size_t mib)
{
	char *memory = malloc(mib << 20);

	if (!memory)
		die("--allocate");
	for (size_t offset = 0; offset < mib << 20; offset += 4096)
		((volatile char *)memory)[offset] = 1;
}

static void send_notification(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *path = settings.notify_to ? settings.notify_to : getenv("NOTIFY_SOCKET");
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (!path)
		path = "NOTIFY_SOCKET is not set";
	strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	if (fd < 0 || sendto(fd, settings.notify, strlen(settings.notify), 0,
			     (struct sockaddr *)&address, sizeof(address)) < 0)
		die(path);
	close(fd);
}

/*
 * The kernel holds the pipe's lock for as long as splice(2) waits for its source, a silent socket. Bytes that pass before leave a
 * reader awake, which then waits for the lock.
 */
static void hold_lock(void)
{
	int sockets[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		die("--hold-stdout");
	for (int bytes = 0; bytes < 1000; bytes++) {
		if (write(sockets[0], "\n", 1) != 1 || splice(sockets[1], NULL, STDOUT_FILENO, NULL, 1, 0) != 1)
			die("--hold-stdout");
	}
	for (;;)
		splice(sockets[1], NULL, STDOUT_FILENO, NULL, 1, 0);
}

/* Whether the pipe has something to read, for a tenth of a second: poll(2) takes no lock. */
static int is_held(int reader)
{
	struct pollfd pipe = { .fd = reader, .events = POLLIN };

	for (int look = 0; look < 10; look++) {
		usleep(10000);
		if (poll(&pipe, 1, 0) != 1)
			return 0;
	}
	return 1;
}

/* In children, so that this process still answers its stop signal. A reader that was faster has nothing to wait for: once more. */
static void hold_stdout(void)
{
	pid_t holder, child = fork();
	int reader;

	if (child < 0)
		die("--hold-stdout");
	if (child > 0)
		return;
	reader = open("/proc/self/fd/1", O_RDONLY | O_NONBLOCK);
	if (reader < 0)
		die("--hold-stdout");
	for (;;) {
		holder = fork();
		if (holder == 0)
			hold_lock();
		usleep(50000);
		while (is_held(reader))
			;
		kill(holder, SIGKILL);
		waitpid(holder, NULL, 0);
	}
}

static void leave_child(void)
{
	pid_t child = fork();

	if (child < 0)
		die("--child");
	if (child > 0)
		return;
	/* As daemons do: now only its cgroups and namespaces tie it to the container. */
	setsid();
	if (fork() != 0)
		_exit(0);
	for (;;)
		pause();
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "name", 1, NULL, 'n' },	    { "log", 1, NULL, 'l' },
		{ "start-delay", 1, NULL, 's' },    { "run", 1, NULL, 'r' },
		{ "exit-code", 1, NULL, 'x' },	    { "term-delay", 1, NULL, 't' },
		{ "term-exit-code", 1, NULL, 'T' }, { "ignore-term", 0, NULL, 'i' },
		{ "stop-signal", 1, NULL, 'S' },    { "listen", 1, NULL, 'p' },
		{ "listen-after", 1, NULL, 'P' },   { "ready-file", 1, NULL, 'f' },
		{ "ready-after", 1, NULL, 'F' },    { "allocate", 1, NULL, 'a' },
		{ "hold-stdout", 0, NULL, 'H' },
		{ "child", 0, NULL, 'c' },	    { "print", 1, NULL, 'o' },
		{ "notify", 1, NULL, 'm' },	    { "notify-to", 1, NULL, 'M' },
		{ "notify-after", 1, NULL, 'N' },   { "run-from", 1, NULL, 'R' },
		{ NULL, 0, NULL, 0 },
	};
	int option, index = 0;

	while ((option = getopt_long(argc, argv, "", options, &index)) != -1) {
		const char *name = options[index].name;

		switch (option) {
		case 'n': settings.name = optarg; break;
		case 'l': settings.log = optarg; break;
		case 's': settings.start_delay = number(name, optarg); break;
		case 'r': settings.run = optarg; break;
		case 'R': settings.run_from = optarg; break;
		case 'x': settings.exit_code = optarg; break;
		case 't': settings.term_delay = number(name, optarg); break;
		case 'T': settings.term_exit_code = number(name, optarg); break;
		case 'i': settings.ignore_term = 1; break;
		case 'S': settings.stop_signal = number(name, optarg); break;
		case 'p': settings.port = number(name, optarg); break;
		case 'P': settings.listen_after = number(name, optarg); break;
		case 'f': settings.ready_file = optarg; break;
		case 'F': settings.ready_after = number(name, optarg); break;
		case 'a': settings.allocate_mib = number(name, optarg); break;
		case 'c': settings.leave_child = 1; break;
		case 'H': settings.hold_stdout = 1; break;
		case 'o': settings.print = optarg; break;
		case 'm': settings.notify = optarg; break;
		case 'M': settings.notify_to = optarg; break;
		case 'N': settings.notify_after = number(name, optarg); break;
		default: fputs(usage, stderr); exit(64);
		}
	}
	if (!settings.name || optind != argc) {
		fputs(usage, stderr);
		exit(64);
	}
}

static int due(long long *deadline, long long now)
{
	if (*deadline > now)
		return 0;
	*deadline = NEVER;
	return 1;
}

static int milliseconds_until(long long now, const long long *deadlines, int count)
{
	long long first = NEVER;

	for (int i = 0; i < count; i++)
		if (deadlines[i] < first)
			first = deadlines[i];
	if (first == NEVER)
		return -1;
	return first <= now ? 0 : (int)(first - now);
}

int main(int argc, char **argv)
{
	enum { STARTED, LISTEN, READY, NOTIFY, RUN_FROM, RUN_OVER, TERM_OVER, DEADLINES };
	long long deadlines[DEADLINES] = { NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER };
	struct pollfd polled[2] = { { .fd = -1, .events = POLLIN }, { .fd = -1, .events = POLLIN } };
	struct timespec execd = time_of_day();
	sigset_t signals;
	int run;

	/* Before anything that takes time: a signal that comes now must be recorded, not lost. But not SIGPIPE of a stdout without a
	 * reader after the shim was killed: each record of it would cause the next, and SIGTERM would never be handled. */
	signal(SIGPIPE, SIG_IGN);
	sigfillset(&signals);
	sigdelset(&signals, SIGPIPE);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGCHLD, SIG_IGN);
	sigdelset(&signals, SIGCHLD);
	polled[0].fd = signalfd(-1, &signals, SFD_CLOEXEC);
	if (polled[0].fd < 0)
		die("signalfd");

	parse(argc, argv);
	run = earlier_runs();
	if (settings.log) {
		log_fd = open(settings.log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
		if (log_fd < 0)
			die(settings.log);
	}
	record_at(execd, "Starting", 0);
	if (settings.leave_child)
		leave_child();
	if (settings.hold_stdout)
		hold_stdout();

	long long begin = now_ms();

	deadlines[STARTED] = begin + settings.start_delay * 1000;
	if (settings.port)
		deadlines[LISTEN] = begin + settings.listen_after * 1000;
	if (settings.notify)
		deadlines[NOTIFY] = begin + settings.notify_after * 1000;
	if (settings.ready_file) {
		/* A container that is restarted in place keeps the files in its root file system. */
		unlink(settings.ready_file);
		deadlines[READY] = begin + settings.ready_after * 1000;
	}

	for (;;) {
		long long now = now_ms();

		if (due(&deadlines[STARTED], now)) {
			record("Started", 0);
			if (settings.print)
				puts(settings.print), fflush(stdout);
			if (settings.allocate_mib)
				touch_memory(settings.allocate_mib);
			if (settings.run)
				deadlines[RUN_FROM] = now;
		}
		if (due(&deadlines[RUN_FROM], now)) {
			if (settings.run_from && access(settings.run_from, F_OK))
				deadlines[RUN_FROM] = now + LOOK_EVERY;
			else
				deadlines[RUN_OVER] = now + list_value("run", settings.run, run) * 1000;
		}
		if (due(&deadlines[LISTEN], now))
			polled[1].fd = listen_on(settings.port);
		if (due(&deadlines[NOTIFY], now))
			send_notification();
		if (due(&deadlines[READY], now)) {
			int fd = open(settings.ready_file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

			if (fd < 0)
				die(settings.ready_file);
			close(fd);
		}
		if (due(&deadlines[TERM_OVER], now))
			leave(settings.term_exit_code);
		if (due(&deadlines[RUN_OVER], now))
			leave(settings.exit_code ? (int)list_value("exit-code", settings.exit_code, run) : 0);

		if (poll(polled, 2, milliseconds_until(now, deadlines, DEADLINES)) < 0 && errno != EINTR)
			die("poll");
		if (polled[1].revents & POLLIN) {
			int connection = accept(polled[1].fd, NULL, NULL);

			if (connection >= 0)
				close(connection);
		}
		if (polled[0].revents & POLLIN) {
			struct signalfd_siginfo info;

			if (read(polled[0].fd, &info, sizeof(info)) != sizeof(info))
				die("signalfd");
			if ((int)info.ssi_signo != settings.stop_signal) {
				record("Signal", info.ssi_signo);
			} else {
				record("Term", info.ssi_signo);
				if (!settings.ignore_term) {
					/* Cancel what was still to come: only the end is left. */
					for (int i = 0; i < TERM_OVER; i++)
						deadlines[i] = NEVER;
					if (deadlines[TERM_OVER] == NEVER)
						deadlines[TERM_OVER] = now_ms() + settings.term_delay * 1000;
				}
			}
		}
	}
}
