/* Compiles profiles with libseccomp, called as runc calls it. Reads commands from standard input, one per line:
 *   number <arch> <name>               -> one u32: the number, or 0xffffffff if the call does not exist
 *   profile <default action> <arch>... -> begins a profile; the native architecture is always included
 *   rule <action> <name> <conditions> { <index> <op> <a> <b> }...
 *   end                                -> u32 length, then the filter; u32 microseconds of the compilation
 */
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void put(uint32_t value) { fwrite(&value, sizeof value, 1, stdout); }

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static enum scmp_compare operator(const char *name)
{
	const char *names[] = { "NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ" };
	const enum scmp_compare ops[] = { SCMP_CMP_NE, SCMP_CMP_LT, SCMP_CMP_LE, SCMP_CMP_EQ,
					  SCMP_CMP_GE, SCMP_CMP_GT, SCMP_CMP_MASKED_EQ };
	for (int i = 0; i < 7; i++)
		if (!strcmp(names[i], name))
			return ops[i];
	exit(2);
}

static void rule(scmp_filter_ctx filter)
{
	char name[64], op[16];
	unsigned action, count, index;
	unsigned long long a, b;
	struct scmp_arg_cmp conditions[6];
	if (scanf("%u %63s %u", &action, name, &count) != 3 || count > 6)
		exit(3);
	for (unsigned i = 0; i < count; i++) {
		if (scanf("%u %15s %llu %llu", &index, op, &a, &b) != 4)
			exit(4);
		conditions[i] = (struct scmp_arg_cmp){ index, operator(op), a, b };
	}
	int number = seccomp_syscall_resolve_name(name);
	if (number == __NR_SCMP_ERROR)
		return;
	int result = seccomp_rule_add_array(filter, action, number, count, conditions);
	if (result < 0 && result != -EEXIST) {
		fprintf(stderr, "rule for %s: %s\n", name, strerror(-result));
		exit(5);
	}
}

static void end(scmp_filter_ctx filter, double start)
{
	FILE *file = tmpfile();
	if (!file || seccomp_export_bpf(filter, fileno(file)) < 0)
		exit(6);
	uint32_t duration = now() - start;
	long length = lseek(fileno(file), 0, SEEK_END);
	char *code = malloc(length);
	if (pread(fileno(file), code, length, 0) != length)
		exit(7);
	put(length);
	fwrite(code, 1, length, stdout);
	put(duration);
	free(code);
	fclose(file);
	seccomp_release(filter);
}

int main(void)
{
	scmp_filter_ctx filter = NULL;
	char command[16], name[64], arch[16];
	double start = 0;
	while (scanf("%15s", command) == 1) {
		if (!strcmp(command, "number")) {
			if (scanf("%15s %63s", arch, name) != 2)
				return 8;
			int number = seccomp_syscall_resolve_name_arch(seccomp_arch_resolve_name(arch), name);
			put(number < 0 ? 0xffffffff : (uint32_t)number);
		} else if (!strcmp(command, "profile")) {
			unsigned action, archs;
			if (scanf("%u %u", &action, &archs) != 2)
				return 9;
			start = now();
			filter = seccomp_init(action);
			seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
			while (archs--)
				if (scanf("%15s", arch) != 1 || (seccomp_arch_add(filter, seccomp_arch_resolve_name(arch)), 0))
					return 10;
		} else if (!strcmp(command, "rule")) {
			rule(filter);
		} else if (!strcmp(command, "end")) {
			end(filter, start);
		} else {
			return 11;
		}
	}
	return 0;
}
