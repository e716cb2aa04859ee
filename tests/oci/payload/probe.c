/* System calls that a shell cannot make. One command per call; prints one line per result.
 *
 *   syscall NR [ARG…]     a system call: "RESULT ERRNO"; an ARG of @text is a pointer to the text
 *   call32 NR [ARG…]      a system call through the i386 entry: "RESULT ERRNO"
 *   fds                   every open descriptor: "N TARGET"; works without /proc, with empty targets
 *   scheduler             "POLICY NICE PRIORITY RUNTIME DEADLINE PERIOD FLAGS"
 *   ioprio                "CLASS PRIORITY"
 *   mempolicy             "MODE MASK"
 *   clock                 "MONOTONIC BOOTTIME" in seconds
 *   affinity              the CPU affinity mask in hexadecimal
 *   agent COUNT ERRNO     responds to COUNT seccomp notifications of descriptor 0 with ERRNO (0: continue the call)
 *   exchange A B          swaps two names forever (renameat2)
 *   ptrace                attaches to every other process in a loop, forever; prints the pids that it attached to
 *   rewrite               as pid 1: tries to write to /proc/N/exe of every other process in a loop, forever; writes only
 *                         to copies that belong to a test case and to memory files, never to a program of the machine
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long number(const char *text) { return text[0] == '@' ? (long)(text + 1) : strtol(text, NULL, 0); }

static int do_syscall(int n, char **a) {
    long v[7] = {0};
    for (int i = 0; i < n && i < 7; i++) v[i] = number(a[i]);
    errno = 0;
    long r = syscall(v[0], v[1], v[2], v[3], v[4], v[5], v[6]);
    printf("%ld %d\n", r, r == -1 ? errno : 0);
    return 0;
}

static int do_call32(int n, char **a) {
#ifdef __x86_64__
    long v[4] = {0};
    for (int i = 0; i < n && i < 4; i++) v[i] = number(a[i]);
    int r;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"((int)v[0]), "b"((int)v[1]), "c"((int)v[2]), "d"((int)v[3]) : "memory", "r8", "r9", "r10", "r11");
    printf("%d %d\n", r < 0 ? -1 : r, r < 0 ? -r : 0);
    return 0;
#else
    return 3;
#endif
}

static int do_fds(void) {
    for (int fd = 0; fd < 4096; fd++) {
        char path[64], to[512];
        if (fcntl(fd, F_GETFD) < 0) continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, to, sizeof to - 1);
        to[n < 0 ? 0 : n] = 0;
        printf("%d %s\n", fd, to);
    }
    return 0;
}

struct attributes { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t runtime, deadline, period; };

static int do_scheduler(void) {
    struct attributes a = {0};
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0)) return perror("sched_getattr"), 1;
    printf("%u %d %u %llu %llu %llu %llu\n", a.policy, a.nice, a.priority, (unsigned long long)a.runtime,
           (unsigned long long)a.deadline, (unsigned long long)a.period, (unsigned long long)a.flags);
    return 0;
}

static int do_ioprio(void) {
    long r = syscall(SYS_ioprio_get, 1, 0);
    if (r < 0) return perror("ioprio_get"), 1;
    printf("%ld %ld\n", r >> 13, r & 7);
    return 0;
}

static int do_mempolicy(void) {
    int mode = 0;
    unsigned long mask[64] = {0};
    if (syscall(SYS_get_mempolicy, &mode, mask, 64 * 64, NULL, 0)) return perror("get_mempolicy"), 1;
    printf("%d %lx\n", mode, mask[0]);
    return 0;
}

static int do_clock(void) {
    struct timespec m, b;
    clock_gettime(CLOCK_MONOTONIC, &m);
    clock_gettime(CLOCK_BOOTTIME, &b);
    printf("%lld %lld\n", (long long)m.tv_sec, (long long)b.tv_sec);
    return 0;
}

static int do_affinity(void) {
    unsigned long mask[16] = {0};
    if (syscall(SYS_sched_getaffinity, 0, sizeof mask, mask) < 0) return perror("sched_getaffinity"), 1;
    printf("%lx\n", mask[0]);
    return 0;
}

static int do_agent(int n, char **a) {
    long count = n > 0 ? number(a[0]) : 1, error = n > 1 ? number(a[1]) : 0;
    struct { struct seccomp_notif n; char more[512]; } request;
    struct { struct seccomp_notif_resp r; char more[512]; } response;
    for (long i = 0; i < count; i++) {
        memset(&request, 0, sizeof request);
        memset(&response, 0, sizeof response);
        if (ioctl(0, SECCOMP_IOCTL_NOTIF_RECV, &request)) return perror("SECCOMP_IOCTL_NOTIF_RECV"), 1;
        response.r.id = request.n.id;
        response.r.error = -(int)error;
        response.r.flags = error ? 0 : SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        if (ioctl(0, SECCOMP_IOCTL_NOTIF_SEND, &response)) return perror("SECCOMP_IOCTL_NOTIF_SEND"), 1;
        printf("%d %u\n", request.n.data.nr, request.n.pid);
        fflush(stdout);
    }
    return 0;
}

static void do_exchange(char **a) {
    for (;;) syscall(SYS_renameat2, AT_FDCWD, a[0], AT_FDCWD, a[1], 2u);
}

static void each_process(void (*visit)(int)) {
    DIR *d = opendir("/proc");
    if (!d) exit(2);
    for (struct dirent *e; (e = readdir(d));) {
        int pid = atoi(e->d_name);
        if (pid > 0 && pid != getpid()) visit(pid);
    }
    closedir(d);
}

static void attach(int pid) {
    char path[64], name[64] = "";
    int status;
    if (ptrace(PTRACE_SEIZE, pid, 0, 0)) return;
    ptrace(PTRACE_INTERRUPT, pid, 0, 0);
    if (waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status)) {
        snprintf(path, sizeof path, "/proc/%d/comm", pid);
        int fd = open(path, O_RDONLY);
        if (fd >= 0) { ssize_t n = read(fd, name, sizeof name - 1); name[n > 0 ? n - 1 : 0] = 0; close(fd); }
        printf("got %d %s\n", pid, name);
        fflush(stdout);
        ptrace(PTRACE_DETACH, pid, 0, 0);
    }
}

static void rewrite(int pid) {
    static char reported[1 << 16];
    char path[64], to[256];
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    /* Like the proof of concept: open the program with O_PATH, and write to it as soon as no process executes it. */
    int program = open(path, O_PATH);
    if (program < 0) return;
    ssize_t n = readlink(path, to, sizeof to - 1);
    to[n < 0 ? 0 : n] = 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", program);
    if (pid < (int)sizeof reported && !reported[pid]) {
        reported[pid] = 1;
        printf("saw %s\n", to);
        fflush(stdout);
    }
    /* The attack does work on unprotected programs, so it is limited to copies and memory files. */
    int expendable = strstr(to, "/pinion-oci-") != NULL || strstr(to, "memfd:") != NULL;
    for (int i = 0; expendable && i < 2000000; i++) {
        int fd = open(path, O_WRONLY);
        if (fd < 0 && errno == ETXTBSY) continue;
        if (fd >= 0) {
            int wrote = write(fd, "#!/bin/owned\n", 13) == 13;
            printf("%s %s\n", wrote ? "overwrote" : "opened", to);
            fflush(stdout);
            close(fd);
        }
        break;
    }
    close(program);
}

int main(int n, char **a) {
    const char *c = n > 1 ? a[1] : "";
    if (!strcmp(c, "syscall")) return do_syscall(n - 2, a + 2);
    if (!strcmp(c, "call32")) return do_call32(n - 2, a + 2);
    if (!strcmp(c, "fds")) return do_fds();
    if (!strcmp(c, "scheduler")) return do_scheduler();
    if (!strcmp(c, "ioprio")) return do_ioprio();
    if (!strcmp(c, "mempolicy")) return do_mempolicy();
    if (!strcmp(c, "clock")) return do_clock();
    if (!strcmp(c, "affinity")) return do_affinity();
    if (!strcmp(c, "agent")) return do_agent(n - 2, a + 2);
    if (!strcmp(c, "exchange") && n == 4) do_exchange(a + 2);
    if (!strcmp(c, "ptrace")) for (;;) each_process(attach);
    if (!strcmp(c, "rewrite")) for (;;) each_process(rewrite);
    fprintf(stderr, "probe: unknown command %s\n", c);
    return 2;
}
