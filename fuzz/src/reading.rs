//! What a profile says of a call of x86_64, read rule by rule as it stands: slow, and hard to get wrong.

use std::{collections::HashMap, sync::OnceLock};

use oci::{Seccomp, SeccompArg, SyscallRule};

use crate::bpf::Call;

/// `AUDIT_ARCH_X86_64`.
pub(crate) const X86_64: u32 = 0xc000_003e;

const ENOSYS: u32 = 0x0005_0000 | 38;

/// Number of a call of x86_64; the second column of the table.
pub(crate) fn number(name: &str) -> Option<u32> {
    static NUMBERS: OnceLock<HashMap<&str, u32>> = OnceLock::new();
    let row = |line: &'static str| {
        let mut words = line.split(' ');
        Some((words.next()?, words.next()?.parse().ok()?))
    };
    NUMBERS.get_or_init(|| TABLE.lines().filter_map(row).collect()).get(name).copied()
}

const TABLE: &str = include_str!("../../crates/seccomp/src/syscalls.txt");

fn action(name: &str, errno: Option<u32>) -> u32 {
    match name {
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => 0,
        "SCMP_ACT_KILL_PROCESS" => 0x8000_0000,
        "SCMP_ACT_TRAP" => 0x0003_0000,
        "SCMP_ACT_ERRNO" => 0x0005_0000 | errno.unwrap_or(1),
        "SCMP_ACT_NOTIFY" => 0x7fc0_0000,
        "SCMP_ACT_TRACE" => 0x7ff0_0000 | errno.unwrap_or(1),
        "SCMP_ACT_LOG" => 0x7ffc_0000,
        "SCMP_ACT_ALLOW" => 0x7fff_0000,
        other => panic!("{other} was compiled"),
    }
}

fn holds(arg: &SeccompArg, call: &Call) -> bool {
    let argument = call.arguments[arg.index as usize];
    match arg.op.as_str() {
        "SCMP_CMP_EQ" => argument == arg.value,
        "SCMP_CMP_NE" => argument != arg.value,
        "SCMP_CMP_LT" => argument < arg.value,
        "SCMP_CMP_LE" => argument <= arg.value,
        "SCMP_CMP_GT" => argument > arg.value,
        "SCMP_CMP_GE" => argument >= arg.value,
        "SCMP_CMP_MASKED_EQ" => argument & arg.value == arg.value_two,
        other => panic!("{other} was compiled"),
    }
}

/// All conditions; but if two are on one argument, any.
fn applies(rule: &SyscallRule, call: &Call) -> bool {
    let twice = (0..6).any(|index| rule.args.iter().filter(|arg| arg.index == index).count() > 1);
    if twice { rule.args.iter().any(|arg| holds(arg, call)) } else { rule.args.iter().all(|arg| holds(arg, call)) }
}

/// A profile with the numbers of its names.
pub(crate) struct Reading<'a> {
    rules: Vec<(Vec<u32>, u32, &'a SyscallRule)>,
    default: u32,
    newest: Option<u32>,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(profile: &'a Seccomp) -> Self {
        let rule = |rule: &'a SyscallRule| {
            let numbers = rule.names.iter().filter_map(|name| number(name)).collect();
            (numbers, action(&rule.action, rule.errno_ret), rule)
        };
        let rules: Vec<_> = profile.syscalls.iter().map(rule).collect();
        let newest = rules.iter().flat_map(|(numbers, _, _): &(Vec<u32>, u32, _)| numbers).max().copied();
        Self { rules, default: action(&profile.default_action, profile.default_errno_ret), newest }
    }

    /// What a call gets: `SECCOMP_RET_*` with its data.
    pub(crate) fn verdict(&self, call: &Call) -> u32 {
        let default = self.default;
        // A rule that says what the default says is none; one without conditions goes before all with some.
        let rules = self.rules.iter().filter(|(numbers, of, _)| *of != default && numbers.contains(&call.number));
        if let Some((_, of, _)) = rules.clone().find(|(_, _, rule)| rule.args.is_empty()) {
            return *of;
        }
        if let Some((_, of, _)) = rules.clone().find(|(_, _, rule)| applies(rule, call)) {
            return *of;
        }
        let permits = default == 0x7fff_0000 || default == 0x7ffc_0000 || default & 0xffff_0000 == 0x7ff0_0000;
        if self.newest.is_some_and(|newest| call.number > newest) && !permits { ENOSYS } else { default }
    }
}
