use std::sync::Arc;

use oci::{Seccomp, SeccompArg, SyscallRule};

use crate::{
    Cache, Error, Program,
    arch::{Arch, Call, names},
    compile,
    compile::compile_for,
    default_profile,
};

fn rule(name: &str, action: &str) -> SyscallRule {
    SyscallRule { names: vec![name.into()], action: action.into(), ..SyscallRule::default() }
}

fn profile(default: &str, syscalls: Vec<SyscallRule>) -> Seccomp {
    Seccomp { default_action: default.into(), syscalls, ..Seccomp::default() }
}

fn argument(index: u32, op: &str) -> SyscallRule {
    let args = vec![SeccompArg { index, value: 1, value_two: 0, op: op.into() }];
    SyscallRule { args, ..rule("read", "SCMP_ACT_ALLOW") }
}

#[test]
fn unknown_names_and_values_are_refused() {
    let errno = |n| SyscallRule { errno_ret: Some(n), ..rule("read", "SCMP_ACT_ERRNO") };
    let flags = |flag: &str| Seccomp { flags: Some(vec![flag.into()]), ..profile("SCMP_ACT_ALLOW", vec![]) };
    let arch = Seccomp { architectures: vec!["SCMP_ARCH_VAX".into()], ..profile("SCMP_ACT_ALLOW", vec![]) };
    let cases = [
        (profile("ALLOW", vec![]), "\"ALLOW\""),
        (
            profile("SCMP_ACT_ERRNO", vec![rule("read", "allow")]),
            "syscalls[0].action (rule for read): unknown value \"allow\"",
        ),
        (profile("SCMP_ACT_ERRNO", vec![rule("", "SCMP_ACT_ALLOW")]), "syscalls[0].names"),
        (
            profile("SCMP_ACT_ERRNO", vec![argument(6, "SCMP_CMP_EQ")]),
            "syscalls[0].args[0].index (rule for read): 6 is more",
        ),
        (
            profile("SCMP_ACT_ERRNO", vec![argument(0, "==")]),
            "syscalls[0].args[0].op (rule for read): unknown value \"==\"",
        ),
        (profile("SCMP_ACT_ALLOW", vec![errno(5000)]), "syscalls[0].errnoRet (rule for read)"),
        (flags("SECCOMP_FILTER_FLAG_NEW_LISTENER"), "NEW_LISTENER"),
        (flags("SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"), "SCMP_ACT_NOTIFY"),
        (arch, "VAX"),
    ];
    for (profile, word) in cases {
        let error = compile(&profile).unwrap_err().to_string();
        assert!(error.starts_with("linux.seccomp") && error.contains(word), "{error} should name {word}");
    }
}

#[test]
fn flags_are_those_of_runc() {
    assert_eq!(compile(&profile("SCMP_ACT_ALLOW", vec![])).unwrap().flags, 4, "SPEC_ALLOW");
    let none = Seccomp { flags: Some(Vec::new()), ..profile("SCMP_ACT_ALLOW", vec![]) };
    assert_eq!(compile(&none).unwrap().flags, 0);
    let mut notify = profile("SCMP_ACT_ALLOW", vec![rule("mount", "SCMP_ACT_NOTIFY")]);
    notify.flags = Some(vec!["SECCOMP_FILTER_FLAG_LOG".into(), "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV".into()]);
    assert_eq!(compile(&notify).unwrap().flags, 2 | 8 | 32);
    let all = profile("SCMP_ACT_NOTIFY", vec![rule("write", "SCMP_ACT_NOTIFY")]);
    assert_eq!(compile(&all).unwrap().flags, 4 | 8, "every call, also those that the runtime itself makes");
}

#[test]
fn too_long_filters_are_refused() {
    let many = |n: u64| {
        let args = (0..6).map(|index| SeccompArg { index, value: n << 33 | n, value_two: 0, op: "SCMP_CMP_EQ".into() });
        SyscallRule { args: args.collect(), ..rule("read", "SCMP_ACT_ALLOW") }
    };
    let error = compile(&profile("SCMP_ACT_ERRNO", (0..400).map(many).collect())).unwrap_err();
    assert!(matches!(error, Error::TooLong(n) if n > 4096), "{error}");
}

#[test]
fn programs_are_encoded_and_decoded() {
    let program = compile(&default_profile(&[])).unwrap();
    let bytes = program.to_bytes();
    assert_eq!(Program::from_bytes(&bytes).unwrap(), program);
    for bad in [&bytes[..3], &bytes[..4], &bytes[..bytes.len() - 1], &[255; 12], &vec![0; 4 + 8 * 4097]] {
        assert!(Program::from_bytes(bad).is_err(), "{} bytes", bad.len());
    }
}

#[test]
fn programs_are_cached_by_content() {
    let cache = Cache::default();
    let one = cache.compile(&default_profile(&[])).unwrap();
    assert!(Arc::ptr_eq(&one, &cache.compile(&default_profile(&[])).unwrap()));
    let admin = ["CAP_SYS_ADMIN".to_owned()];
    assert!(!Arc::ptr_eq(&one, &cache.compile(&default_profile(&admin)).unwrap()));
    for n in 0..200 {
        let errno = Seccomp { default_errno_ret: Some(n), ..profile("SCMP_ACT_ERRNO", vec![]) };
        cache.compile(&errno).unwrap();
    }
    assert_eq!(*cache.compile(&default_profile(&[])).unwrap(), *one);
}

#[test]
fn syscall_tables_are_consistent() {
    let all: Vec<_> = names().collect();
    assert!(all.is_sorted() && all.len() > 450);
    let number = |arch: Arch, name| arch.number(Call::from_name(name).expect(name));
    assert_eq!(number(Arch::X86_64, "execve"), Some(59));
    assert_eq!(number(Arch::X86, "execve"), Some(11));
    assert_eq!(number(Arch::X32, "execve"), Some(0x4000_0000 | 520));
    assert_eq!(number(Arch::Aarch64, "execve"), Some(221));
    assert_eq!(number(Arch::Aarch64, "open"), None);
    assert_eq!((number(Arch::Arm, "openat"), number(Arch::Arm, "cacheflush")), (Some(322), Some(983_042)));
    assert_eq!(Call::from_name("not_a_call"), None);
    assert!(all.iter().all(|name| Call::from_name(name).is_some()));
    let multiplexed = |name, argument| Call::from_name(name).map(|call| (call, argument));
    assert_eq!(Call::from_name("bind").and_then(Call::multiplexed), multiplexed("socketcall", 2));
    assert_eq!(Call::from_name("shmctl").and_then(Call::multiplexed), multiplexed("ipc", 24));
    assert_eq!(Call::from_name("read").and_then(Call::multiplexed), None);
    for name in default_profile(&[]).syscalls.iter().flat_map(|rule| &rule.names) {
        assert!(all.contains(&name.as_str()), "{name} is not in the table");
    }
    compile_for(Arch::Aarch64, &default_profile(&[])).unwrap();
}

#[test]
fn logged_calls_are_named() {
    let name = crate::system_call_name;
    assert_eq!([name(0xc000_003e, 165), name(0x4000_0003, 21), name(0xc000_00b7, 40)], [Some("mount"); 3]);
    assert_eq!(name(0xc000_003e, 0x4000_0000 | 165), Some("mount"), "x32");
    assert_eq!([name(0xc000_003e, 100_000), name(7, 165)], [None; 2]);
}
