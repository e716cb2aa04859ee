#!/bin/sh
# Writes src/syscalls.txt: the number of every system call on x86_64, i386, x32, aarch64 and 32-bit ARM ("-" if the
# architecture does not have the call), from the kernel headers of an x86_64 machine (linux-libc-dev), those of ARM
# (linux-libc-dev-armhf-cross, or another directory in ARM_HEADERS) and calls newer than Debian 12. Needs cpp and awk.
set -eu
cd "$(dirname "$0")"
arm=${ARM_HEADERS:-/usr/arm-linux-gnueabihf/include}
[ -e "$arm/asm/unistd.h" ] || { echo "$arm: ARM kernel headers not found; install linux-libc-dev-armhf-cross" >&2; exit 1; }

# Names and numbers. Calls added since Linux 5.1 have the same number on all architectures.
newer='cachestat 451 fchmodat2 452 map_shadow_stack 453 futex_wake 454 futex_wait 455 futex_requeue 456 statmount 457
listmount 458 lsm_get_self_attr 459 lsm_set_self_attr 460 lsm_list_modules 461 mseal 462 setxattrat 463 getxattrat 464
listxattrat 465 removexattrat 466 open_tree_attr 467 file_getattr 468 file_setattr 469 listns 470 rseq_slice_yield 471'

macros() {
    echo "#include <$1>" | cpp -dM -D__ARCH_WANT_RENAMEAT -D__ARCH_WANT_NEW_STAT -D__ARCH_WANT_SET_GET_RLIMIT \
        -D__ARCH_WANT_TIME32_SYSCALLS -D__ARCH_WANT_SYS_CLONE3 -D__ARCH_WANT_MEMFD_SECRET - | sed "s/^/$2 /"
}

{
    macros asm/unistd_64.h 1
    macros asm/unistd_32.h 2
    macros asm/unistd_x32.h 3
    macros asm-generic/unistd.h 4
    # ARM numbers are relative to a base; ARM-private calls have a separate base far above.
    echo '#include <asm/unistd.h>' | cpp -dM -nostdinc -D__ARM_EABI__ -I"$arm" - \
        | sed -n -e 's/^#define __NR_\([a-z0-9_]*\) (__NR_SYSCALL_BASE *+ *\([0-9]*\))$/5 #define __NR_\1 \2/p'
    for call in 'sync_file_range2 341' 'breakpoint 983041' 'cacheflush 983042' 'usr26 983043' 'usr32 983044' 'set_tls 983045' 'get_tls 983046'; do
        echo "5 #define __NR_$call"
    done
    echo "$newer" | tr '\n' ' ' | xargs -n 2 | while read -r name number; do
        for column in 1 2 3 4 5; do echo "$column #define __NR_$name $number"; done
    done
    # Calls of user-space probes, which exist only on x86_64 and x32.
    for column in 1 3; do
        echo "$column #define __NR_uretprobe 335"
        echo "$column #define __NR_uprobe 336"
    done
} | awk '
    $2 == "#define" && $3 ~ /^__NR(3264)?_/ {
        value = $0
        sub(/^[^ ]+ [^ ]+ [^ ]+ /, "", value)
        gsub(/[()]|__X32_SYSCALL_BIT \+ /, "", value)
        macro[$1, $3] = value
        if ($3 ~ /^__NR_/ && $3 != "__NR_syscalls" && $3 != "__NR_arch_specific_syscall") names[substr($3, 6)] = 1
    }
    END {
        for (name in names) {
            line = name
            for (column = 1; column <= 5; column++) {
                value = macro[column, "__NR_" name]
                while (value ~ /^__NR/) value = macro[column, value]
                line = line " " (value ~ /^[0-9]+$/ ? value : "-")
            }
            print line
        }
    }' | grep -v ' - - - - -$' | LC_ALL=C sort > src/syscalls.txt
