//! Sample calls and profiles.

use std::{collections::HashSet, sync::OnceLock};

use oci::{Seccomp, SeccompArg, SyscallRule};
use proptest::{collection::vec, option, prelude::*, sample::select};

use crate::interpreter::Call;

type Row = (&'static str, [Option<u32>; 5]);

/// Returns the table: names, and numbers on x86_64, i386, x32, aarch64 and ARM.
pub(crate) fn rows() -> impl Iterator<Item = Row> {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    let parse = |line: &'static str| {
        let mut words = line.split(' ');
        let name = words.next().expect("a name");
        let numbers: Vec<_> = words.map(|word| word.parse().ok()).collect();
        (name, numbers.try_into().expect("five columns"))
    };
    ROWS.get_or_init(|| include_str!("../../src/syscalls.txt").lines().map(parse).collect()).iter().copied()
}

/// Reports whether libseccomp 2.5.4 (Debian 12) knows the call: those of Linux 6.1 and earlier.
fn is_old(name: &str) -> bool {
    let newest = rows().find(|(row, _)| *row == name).and_then(|(_, numbers)| numbers.into_iter().flatten().max());
    newest.is_none_or(|n| n <= 450 || n > 500) && !matches!(name, "uretprobe" | "uprobe")
}

/// Returns the profile without the calls that libseccomp does not know.
pub(crate) fn known(profile: &Seccomp) -> Seccomp {
    let mut profile = profile.clone();
    for rule in &mut profile.syscalls {
        rule.names.retain(|name| is_old(name));
    }
    profile
}

/// Returns argument values around all values in the rules.
pub(crate) fn arguments(profile: &Seccomp) -> Vec<[u64; 6]> {
    let mut values = vec![0, 1, u64::MAX, 1 << 31, 1 << 32, 0x7e02_0000, 0x1_0000_0002];
    for arg in profile.syscalls.iter().flat_map(|rule| &rule.args) {
        for value in [arg.value, arg.value_two] {
            values.extend([
                value,
                value.wrapping_add(1),
                value.wrapping_sub(1),
                value ^ 1 << 32,
                value ^ 1 << 40,
                !value,
            ]);
        }
    }
    values.sort_unstable();
    values.dedup();
    let mut sets: Vec<[u64; 6]> = values.iter().map(|value| [*value; 6]).collect();
    // Combine different values by walking the list with a different stride for each argument.
    for (at, _) in values.iter().enumerate() {
        sets.push(std::array::from_fn(|index| values[(at * (index + 1) + 3 * index) % values.len()]));
    }
    sets
}

/// Returns calls with every number of the tables and beyond, on every architecture: with all arguments for numbers of
/// calls whose arguments are checked, with two for the others.
pub(crate) fn calls(profile: &Seccomp, arguments: &[[u64; 6]]) -> Vec<Call> {
    let checked: Vec<&String> = profile.syscalls.iter().filter(|r| !r.args.is_empty()).flat_map(|r| &r.names).collect();
    let multiplexes = |name: &str| matches!(name, "socketcall" | "ipc");
    let rows = rows().filter(|(name, _)| multiplexes(name) || checked.iter().any(|checked| checked == name));
    let checked: HashSet<u32> = rows.flat_map(|(_, numbers)| numbers).flatten().collect();
    let edges = [0x3fff_ffff, 0x4fff_ffff, 0x7fff_ffff, u32::MAX - 1, u32::MAX];
    let numbers = (0..600).chain((0..600).map(|n| n | 0x4000_0000)).chain(edges);
    let mut calls = Vec::new();
    for (number, arch) in numbers.flat_map(|n| [Call::X86_64, Call::X86, Call::AARCH64, 0].map(|arch| (n, arch))) {
        let all = checked.contains(&(number & 0xffff)) && arch != 0;
        for args in arguments.iter().take(if all { usize::MAX } else { 2 }) {
            // 32-bit calls have 32-bit arguments.
            let args = if arch == Call::X86 { args.map(|a| a & 0xffff_ffff) } else { *args };
            calls.push(Call { arch, number, args });
        }
    }
    calls
}

fn actions() -> impl Strategy<Value = (&'static str, Option<u32>)> {
    select(vec![
        ("SCMP_ACT_ALLOW", None),
        ("SCMP_ACT_ERRNO", None),
        ("SCMP_ACT_ERRNO", Some(38)),
        ("SCMP_ACT_KILL", None),
        ("SCMP_ACT_KILL_PROCESS", None),
        ("SCMP_ACT_TRAP", None),
        ("SCMP_ACT_TRACE", Some(7)),
        ("SCMP_ACT_LOG", None),
    ])
}

fn args() -> impl Strategy<Value = SeccompArg> {
    let ops = ["NE", "LT", "LE", "EQ", "GE", "GT"];
    let value = || prop_oneof![0u64..4, any::<u64>(), any::<u32>().prop_map(u64::from), Just(u64::MAX), Just(1 << 32)];
    let plain = (0u32..6, select(ops.to_vec()), value()).prop_map(|(index, op, value)| SeccompArg {
        index,
        value,
        value_two: 0,
        op: format!("SCMP_CMP_{op}"),
    });
    // With bits outside the mask the condition could never match.
    let masked = (0u32..6, value(), value()).prop_map(|(index, mask, value)| SeccompArg {
        index,
        value: mask,
        value_two: value & mask,
        op: "SCMP_CMP_MASKED_EQ".into(),
    });
    prop_oneof![3 => plain, 1 => masked]
}

/// Returns names of calls without those that i386 programs can also make through socketcall and ipc, whose arguments
/// cannot be compared.
fn plain_names() -> Vec<String> {
    let prefixes =
        ["sem", "msg", "shm", "sock", "send", "recv", "get", "set", "bind", "connect", "listen", "accept", "shut"];
    // `get` also excludes getuid and geteuid, for which the profiles have separate rules.
    let plain = |name: &&str| is_old(name) && !prefixes.iter().any(|prefix| name.starts_with(prefix)) && *name != "ipc";
    rows().map(|(name, _)| name).filter(plain).map(str::to_owned).collect()
}

/// Generates profiles that libseccomp 2.5.4 compiles correctly: one rule per call, or several that compare one argument
/// for equality. It merges other alternatives incorrectly (`a5 < 1 << 32` or `a5 < 0` becomes the latter).
pub(crate) fn simple_profiles() -> impl Strategy<Value = Seccomp> {
    (profiles(), any::<u64>()).prop_map(|(mut profile, value)| {
        profile.syscalls.dedup_by(|next, previous| next.names == previous.names);
        for rule in &mut profile.syscalls {
            rule.args.sort_by_key(|arg| arg.index);
            rule.args.dedup_by_key(|arg| arg.index);
        }
        let equal = |value| SeccompArg { index: 2, value, value_two: 0, op: "SCMP_CMP_EQ".into() };
        profile.syscalls.extend([value, value ^ 1 << 33, 7].map(|value| SyscallRule {
            names: vec!["geteuid".into()],
            action: "SCMP_ACT_ERRNO".into(),
            errno_ret: Some(6),
            args: vec![equal(value)],
        }));
        profile
    })
}

/// Generates profiles with one action per call: libseccomp does not specify which of several applies if their
/// conditions overlap.
pub(crate) fn profiles() -> impl Strategy<Value = Seccomp> {
    let call = (select(plain_names()), actions(), vec(vec(args(), 0..3), 1..3));
    let archs = ["SCMP_ARCH_X86", "SCMP_ARCH_X32", "SCMP_ARCH_AARCH64"];
    let calls = vec(call, 0..40);
    (actions(), vec(select(archs.to_vec()), 0..3), calls, option::of(Just("SCMP_ARCH_X86_64"))).prop_map(
        |((default_action, default_errno_ret), archs, mut calls, native)| {
            calls.sort_by(|a, b| a.0.cmp(&b.0));
            calls.dedup_by(|a, b| a.0 == b.0);
            let rule =
                |(name, (action, errno_ret), sets): (String, (&'static str, Option<u32>), Vec<Vec<SeccompArg>>)| {
                    sets.into_iter().map(move |args| SyscallRule {
                        names: vec![name.clone(), "not_a_call".into()],
                        action: action.into(),
                        errno_ret,
                        args,
                    })
                };
            let mut architectures: Vec<String> = archs.into_iter().chain(native).map(str::to_owned).collect();
            architectures.sort();
            architectures.dedup();
            // libseccomp 2.5.4 does not load the number if the profile has x32 but no rule for it; therefore one rule
            // applies everywhere.
            let everywhere = SyscallRule {
                names: vec!["getuid".into()],
                action: "SCMP_ACT_ERRNO".into(),
                errno_ret: Some(5),
                args: Vec::new(),
            };
            Seccomp {
                default_action: default_action.into(),
                default_errno_ret,
                architectures,
                syscalls: calls.into_iter().flat_map(rule).chain([everywhere]).collect(),
                ..Seccomp::default()
            }
        },
    )
}
