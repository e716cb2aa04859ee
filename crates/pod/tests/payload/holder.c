/*
 * Holds the kernel's mutex of a pipe: splice(2) between a pipe and a socket sleeps with the pipe locked while the socket has
 * nothing to read, or no room. Every read(2), write(2), FIONREAD and close(2) of that pipe by others waits, uninterruptibly.
 *
 *   holder stdout        holds its standard output, which has a byte to read
 *   holder silent        holds its standard output which has no data to read
 *   holder stdin         holds its standard input, once it has data to read
 *   holder serve PATH    holds each descriptor that it receives, in a separate process
 *   holder pass PATH     has the server hold its standard output, and exits
 *
 * It exits after a minute, so that a failing test leaves no processes that cannot be killed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail(const char *operation)
{
	perror(operation);
	exit(99);
}

/* Returns one of two connected sockets. Nothing is ever read from or written to the other one. */
static int silent_socket(void)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		fail("socketpair");
	return pair[0];
}

static void hold_silently(int fd)
{
	prctl(PR_SET_NAME, "holding");
	splice(silent_socket(), NULL, fd, NULL, 1, 0);
	fail("splice to the pipe");
}

/* Returns a second reader of a pipe. It is only polled, which takes no lock. */
static int reader_of(int fd)
{
	char path[32];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (reader < 0)
		fail(path);
	return reader;
}

/* Reports whether a process sleeps interruptibly, which one that waits for the mutex does not. */
static int sleeps(pid_t pid)
{
	char path[32], state = '?';
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	FILE *file = fopen(path, "r");
	if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		fail(path);
	fclose(file);
	return state == 'S';
}

/* Holds a pipe that has a byte to read, and then answers the client, if there is one. Whoever the byte wakes up may read
 * it before the pipe is locked; then another process tries again. */
static void hold_output(int fd, int client)
{
	int from = silent_socket();
	struct pollfd reader = {.fd = reader_of(fd), .events = POLLIN};
	signal(SIGCHLD, SIG_DFL);
	for (;;) {
		pid_t holder = fork();
		if (holder == 0) {
			alarm(60);
			if (write(fd, "x", 1) != 1)
				fail("write");
			splice(from, NULL, fd, NULL, 1, 0);
			fail("splice to the pipe");
		}
		while (!sleeps(holder))
			usleep(1000);
		if (poll(&reader, 1, 0) == 1) {
			if (client >= 0 && write(client, "k", 1) != 1)
				fail("answer");
			/* For tests that wait until the pipe is held. */
			prctl(PR_SET_NAME, "holding");
			waitpid(holder, NULL, 0);
			exit(97);
		}
		kill(holder, SIGKILL);
		waitpid(holder, NULL, 0);
	}
}

static void hold_input(int fd)
{
	static char junk[1 << 16];
	int to = silent_socket();
	fcntl(to, F_SETFL, O_NONBLOCK);
	while (write(to, junk, sizeof junk) > 0 || write(to, junk, 1) > 0)
		;
	fcntl(to, F_SETFL, 0);
	splice(fd, NULL, to, NULL, 1, 0);
	fail("splice from the pipe");
}

static struct sockaddr_un address(const char *path)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	strncpy(name.sun_path, path, sizeof name.sun_path - 1);
	return name;
}

static void serve(const char *path)
{
	struct sockaddr_un name = address(path);
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);
	signal(SIGCHLD, SIG_IGN);
	if (bind(listener, (struct sockaddr *)&name, sizeof name) < 0 || listen(listener, 64) < 0)
		fail(path);
	for (;;) {
		char byte, control[CMSG_SPACE(sizeof(int))];
		struct iovec data = {&byte, 1};
		struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
		int fd, client = accept(listener, NULL, NULL);
		if (client < 0 || recvmsg(client, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
			fail("receive a descriptor");
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
		if (fork() == 0) {
			alarm(60);
			hold_output(fd, client);
		}
		/* The pipe is not closed: that would wait for the mutex. */
		close(client);
	}
}

static void pass(const char *path)
{
	struct sockaddr_un name = address(path);
	int out = 1, server = socket(AF_UNIX, SOCK_STREAM, 0);
	char byte = 'f', control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &out, sizeof out);
	if (connect(server, (struct sockaddr *)&name, sizeof name) < 0 || sendmsg(server, &message, 0) != 1)
		fail(path);
	if (read(server, &byte, 1) != 1)
		fail("read the answer");
}

int main(int count, char **arguments)
{
	const char *mode = count > 1 ? arguments[1] : "";
	/* The init process of a PID namespace ignores SIGALRM. */
	if (getpid() == 1 && strcmp(mode, "serve") && fork() > 0) {
		wait(NULL);
		return 97;
	}
	alarm(60);
	if (!strcmp(mode, "stdout"))
		hold_output(1, -1);
	if (!strcmp(mode, "silent"))
		hold_silently(1);
	if (!strcmp(mode, "stdin"))
		hold_input(0);
	if (!strcmp(mode, "serve") && count > 2)
		serve(arguments[2]);
	if (!strcmp(mode, "pass") && count > 2) {
		pass(arguments[2]);
		return 0;
	}
	return 98;
}
