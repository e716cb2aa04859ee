//! Evaluates a profile directly, rule by rule, without compiling it.

use oci::{Seccomp, SeccompArg};

use crate::{
    interpreter::Call,
    reference::{ENOSYS, action},
    samples::rows,
};

const KILL_PROCESS: u32 = 0x8000_0000;

/// A profile with the numbers of its calls.
pub(crate) struct Evaluation<'a> {
    profile: &'a Seccomp,
    /// For each rule and each of its names, the row of the table.
    numbers: Vec<Vec<[Option<u32>; 5]>>,
    default: u32,
    permits: bool,
}

impl<'a> Evaluation<'a> {
    pub(crate) fn new(profile: &'a Seccomp) -> Self {
        let row = |name: &String| rows().find(|(row, _)| row == name).map(|(_, numbers)| numbers);
        let numbers = profile.syscalls.iter().map(|rule| rule.names.iter().filter_map(row).collect()).collect();
        let default = action(&profile.default_action, profile.default_errno_ret);
        let permits = matches!(default & 0xffff_0000, 0x7fff_0000 | 0x7ffc_0000 | 0x7ff0_0000);
        Self { profile, numbers, default, permits }
    }

    pub(crate) fn verdict(&self, call: &Call) -> u32 {
        let named = |arch: &str| self.profile.architectures.iter().any(|a| a == arch);
        let (column, bit, wide) = match call.arch {
            Call::X86_64 if call.number == u32::MAX && !named("SCMP_ARCH_X32") => return self.default,
            Call::X86_64 if call.number < 0x4000_0000 => (0, 0, true),
            Call::X86_64 if named("SCMP_ARCH_X32") => (2, 0x4000_0000, false),
            Call::X86 if named("SCMP_ARCH_X86") => (1, 0, false),
            _ => return KILL_PROCESS,
        };
        let here = |row: &[Option<u32>; 5]| row[column].map(|n| n | bit);
        let last = self.numbers.iter().flatten().filter_map(here).max();
        if !self.permits && last.is_some_and(|last| call.number > last) {
            return ENOSYS;
        }
        let (mut always, mut checked) = (None, None);
        for (rule, rows) in self.profile.syscalls.iter().zip(&self.numbers) {
            if !rows.iter().any(|row| here(row) == Some(call.number)) {
                continue;
            }
            let action = action(&rule.action, rule.errno_ret);
            let twice = rule.args.iter().enumerate().any(|(at, a)| rule.args[..at].iter().any(|b| a.index == b.index));
            let mut results = rule.args.iter().map(|arg| matches(arg, call, wide));
            if action == self.default {
                continue;
            } else if rule.args.is_empty() {
                always = always.or(Some(action));
            } else if if twice { results.any(|result| result) } else { results.all(|result| result) } {
                checked = checked.or(Some(action));
            }
        }
        always.or(checked).unwrap_or(self.default)
    }
}

fn matches(arg: &SeccompArg, call: &Call, wide: bool) -> bool {
    let truncate = |value: u64| if wide { value } else { value & 0xffff_ffff };
    let argument = truncate(call.args[arg.index as usize]);
    let (value, value_two) = (truncate(arg.value), truncate(arg.value_two));
    match arg.op.as_str() {
        "SCMP_CMP_NE" => argument != value,
        "SCMP_CMP_LT" => argument < value,
        "SCMP_CMP_LE" => argument <= value,
        "SCMP_CMP_EQ" => argument == value,
        "SCMP_CMP_GE" => argument >= value,
        "SCMP_CMP_GT" => argument > value,
        "SCMP_CMP_MASKED_EQ" => argument & value == value_two,
        other => panic!("{other}"),
    }
}
