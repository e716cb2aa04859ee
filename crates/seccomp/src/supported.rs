//! The supported names of a profile; a test checks that each is accepted.

/// Values of `action` and `defaultAction`.
pub const ACTIONS: [&str; 9] = [
    "SCMP_ACT_ALLOW",
    "SCMP_ACT_ERRNO",
    "SCMP_ACT_KILL",
    "SCMP_ACT_KILL_PROCESS",
    "SCMP_ACT_KILL_THREAD",
    "SCMP_ACT_LOG",
    "SCMP_ACT_NOTIFY",
    "SCMP_ACT_TRACE",
    "SCMP_ACT_TRAP",
];

/// Values of `args[].op`.
pub const OPERATORS: [&str; 7] =
    ["SCMP_CMP_EQ", "SCMP_CMP_GE", "SCMP_CMP_GT", "SCMP_CMP_LE", "SCMP_CMP_LT", "SCMP_CMP_MASKED_EQ", "SCMP_CMP_NE"];

/// Values of `flags`.
pub const FLAGS: [&str; 4] = [
    "SECCOMP_FILTER_FLAG_TSYNC",
    "SECCOMP_FILTER_FLAG_LOG",
    "SECCOMP_FILTER_FLAG_SPEC_ALLOW",
    "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV",
];

/// Returns the values of `architectures` whose programs the kernel of this machine can run.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    use crate::arch::Arch;
    Arch::NATIVE.family().iter().map(|arch| match arch {
        Arch::X86_64 => "SCMP_ARCH_X86_64",
        Arch::X86 => "SCMP_ARCH_X86",
        Arch::X32 => "SCMP_ARCH_X32",
        Arch::Aarch64 => "SCMP_ARCH_AARCH64",
        Arch::Arm => "SCMP_ARCH_ARM",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(action: &str, op: &str, flag: &str) -> oci::Seccomp {
        let arg = oci::SeccompArg { op: op.into(), ..Default::default() };
        let names = vec!["getpid".to_owned()];
        let rule =
            |action: &str| oci::SyscallRule { names: names.clone(), action: action.into(), ..Default::default() };
        oci::Seccomp {
            default_action: "SCMP_ACT_ALLOW".into(),
            architectures: architectures().map(str::to_owned).collect(),
            flags: Some(vec![flag.into()]),
            syscalls: vec![oci::SyscallRule { args: vec![arg], ..rule(action) }, rule("SCMP_ACT_NOTIFY")],
            ..Default::default()
        }
    }

    #[test]
    fn every_name_is_accepted() {
        for action in ACTIONS {
            for op in OPERATORS {
                for flag in FLAGS {
                    crate::compile(&profile(action, op, flag)).expect(action);
                }
            }
        }
        assert!(architectures().all(|name| crate::arch::parse(name).unwrap().is_some()));
    }
}
