//! Compares the compiler with libseccomp (called as runc calls it) and with a direct evaluation of the profile: for all
//! numbers, all architectures, and arguments around every value in a rule.
#![cfg(target_arch = "x86_64")]

mod evaluation;
mod interpreter;
mod reference;
mod samples;

use oci::{Seccomp, SeccompArg, SyscallRule};
use proptest::{prelude::ProptestConfig, prop_assert_eq, proptest};

use crate::{
    evaluation::Evaluation,
    interpreter::{Call, run},
    reference::{ARCHS, Reference},
    samples::{arguments, calls, known, profiles, rows, simple_profiles},
};

/// Compares all verdicts with libseccomp's. Numbers with the x32 bit, if x32 is not among the architectures, are
/// compared only with `evaluation`, because number -1 differs.
fn compare(profile: &Seccomp) -> Result<(), String> {
    let program = seccomp::compile(profile).map_err(|error| error.to_string())?;
    let reference = Reference::compile(profile);
    let x32 = profile.architectures.iter().any(|arch| arch == "SCMP_ARCH_X32");
    // Our filter has no section for architectures that this machine's kernel does not run.
    let foreign = profile.architectures.iter().any(|arch| arch == "SCMP_ARCH_AARCH64");
    for call in calls(profile, &arguments(profile)) {
        if (!x32 && call.number >= 0x4000_0000) || (foreign && call.arch == Call::AARCH64) {
            continue;
        }
        let (verdict, expected) = (run(&program.filter, &call), reference.verdict(&call));
        if verdict != expected {
            return Err(format!("{call:x?}: {verdict:#x}, libseccomp: {expected:#x}"));
        }
    }
    Ok(())
}

#[test]
fn numbers_agree() {
    let names: Vec<&str> = rows().map(|(name, _)| name).collect();
    for (column, arch) in ARCHS.iter().enumerate() {
        let mut both = 0;
        // The columns are x86_64, i386 and x32.
        for ((name, numbers), expected) in rows().zip(reference::numbers(arch, &names)) {
            let number = numbers[column].map(|n| if *arch == "x32" { n | 0x4000_0000 } else { n });
            if let (Some(number), Some(expected)) = (number, expected) {
                assert_eq!(number, expected, "{name} on {arch}");
                both += 1;
            }
            assert!(expected.is_none() || number.is_some(), "{name} on {arch}: libseccomp has {expected:?}");
        }
        assert!(both > 300, "{arch}: {both}");
    }
}

#[test]
fn default_profile_agrees() {
    let sets: [&[&str]; 6] = [
        &[],
        &["CAP_SYS_ADMIN"],
        &["CAP_SYS_PTRACE", "CAP_SYS_TIME", "CAP_BPF"],
        &["CAP_SYS_NICE", "CAP_SYS_CHROOT"],
        &["CAP_DAC_READ_SEARCH", "CAP_SYS_BOOT", "CAP_SYS_MODULE", "CAP_SYS_PACCT"],
        &["CAP_SYS_RAWIO", "CAP_SYS_TTY_CONFIG", "CAP_SYSLOG", "CAP_PERFMON"],
    ];
    for capabilities in sets {
        let capabilities: Vec<String> = capabilities.iter().map(|name| (*name).to_owned()).collect();
        let mut profile = seccomp::default_profile(&capabilities);
        compare(&known(&profile)).unwrap();
        profile.architectures.clear();
        compare(&known(&profile)).unwrap();
    }
}

/// An argument condition: index, operator, value, second value.
type Arg = (u32, &'static str, u64, u64);

/// Returns a profile with several rules for one call, each with a different errno: 2, 3, ….
fn rules(conditions: &[&[Arg]]) -> Seccomp {
    let arg = |(index, op, value, value_two): &Arg| SeccompArg {
        index: *index,
        value: *value,
        value_two: *value_two,
        op: format!("SCMP_CMP_{op}"),
    };
    let rule = |(args, errno): (&&[Arg], u32)| SyscallRule {
        names: vec!["getppid".into()],
        action: "SCMP_ACT_ERRNO".into(),
        errno_ret: Some(errno),
        args: args.iter().map(arg).collect(),
    };
    let syscalls = conditions.iter().zip(2..).map(rule).collect();
    Seccomp { default_action: "SCMP_ACT_ALLOW".into(), syscalls, ..Seccomp::default() }
}

#[test]
fn precedence_agrees() {
    let cases: [&[&[Arg]]; 9] = [
        &[&[], &[]],
        &[&[], &[(0, "EQ", 5, 0)]],
        &[&[(0, "EQ", 5, 0)], &[]],
        &[&[(0, "EQ", 5, 0)], &[(0, "EQ", 6, 0)], &[(0, "EQ", 1 << 32 | 5, 0)]],
        &[&[(0, "EQ", 5, 0)], &[(0, "NE", 5, 0)]],
        &[&[(0, "LT", 5, 0)], &[(0, "GE", 5, 0)]],
        &[&[(0, "EQ", 5, 0)], &[(0, "LT", 10, 0)]],
        &[&[(0, "EQ", 5, 0)], &[(0, "EQ", 5, 0), (1, "EQ", 6, 0)]],
        &[&[(0, "MASKED_EQ", 4, 4)], &[(0, "MASKED_EQ", 4, 0)]],
    ];
    for case in cases {
        assert_eq!(compare(&rules(case)), Ok(()), "{case:?}");
    }
}

/// If conditions with different actions overlap, libseccomp uses an unspecified order (equality before other operators,
/// later arguments first). Here the first rule applies.
#[test]
fn first_of_overlapping_rules_applies() {
    let cases: [&[&[Arg]]; 2] = [&[&[(0, "LT", 10, 0)], &[(0, "EQ", 5, 0)]], &[&[(0, "EQ", 5, 0)], &[(1, "EQ", 5, 0)]]];
    for case in cases {
        let profile = rules(case);
        let call = Call { arch: Call::X86_64, number: 110, args: [5; 6] };
        assert_eq!(run(&seccomp::compile(&profile).unwrap().filter, &call), 0x0005_0002, "{case:?}");
        assert_eq!(Reference::compile(&profile).verdict(&call), 0x0005_0003, "{case:?}");
    }
}

/// i386 programs can make these calls in two ways. libseccomp allows socketcall whatever the arguments of the rule are.
#[test]
fn socketcall_does_not_bypass_conditions() {
    let allow = |names: &[&str], args| SyscallRule {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        action: "SCMP_ACT_ALLOW".into(),
        args,
        ..SyscallRule::default()
    };
    let unix = SeccompArg { index: 0, value: 1, value_two: 0, op: "SCMP_CMP_EQ".into() };
    let mut profile = Seccomp {
        default_action: "SCMP_ACT_ERRNO".into(),
        architectures: vec!["SCMP_ARCH_X86".into()],
        syscalls: vec![allow(&["bind", "accept4", "semget", "shmctl", "faccessat2"], Vec::new())],
        ..Seccomp::default()
    };
    assert_eq!(compare(&profile), Ok(()));
    profile.syscalls.push(allow(&["socket"], vec![unix]));
    let program = seccomp::compile(&profile).unwrap();
    let verdict = |number, first| run(&program.filter, &Call { arch: Call::X86, number, args: [first, 0, 0, 0, 0, 0] });
    let (socketcall, socket, allowed, refused) = (102, 359, 0x7fff_0000, 0x0005_0001);
    assert_eq!([verdict(socket, 1), verdict(socket, 2)], [allowed, refused]);
    assert_eq!([verdict(socketcall, 1), verdict(socketcall, 2)], [refused, allowed], "socket, bind");
}

#[test]
fn default_profile_matches_its_evaluation() {
    let profile = seccomp::default_profile(&[]);
    let (program, evaluation) = (seccomp::compile(&profile).unwrap(), Evaluation::new(&profile));
    for call in calls(&profile, &arguments(&profile)) {
        assert_eq!(run(&program.filter, &call), evaluation.verdict(&call), "{call:x?}");
    }
}

/// Prints the measurements of the documentation with `--nocapture`.
#[test]
fn default_profile_is_shorter_than_libseccomp() {
    let profile = seccomp::default_profile(&[]);
    seccomp::compile(&profile).unwrap();
    let start = std::time::Instant::now();
    let program = seccomp::compile(&profile).unwrap();
    let (duration, reference) = (start.elapsed(), Reference::compile(&known(&profile)));
    println!("{} instructions in {duration:?}", program.instructions());
    println!("libseccomp: {} instructions in {} µs", reference.filter.len() / 8, reference.microseconds);
    assert!(program.instructions() < reference.filter.len() / 8);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_profiles_agree(profile in simple_profiles()) {
        prop_assert_eq!(compare(&profile), Ok(()));
    }

    #[test]
    fn random_profiles_match_their_evaluation(profile in profiles()) {
        let (program, evaluation) = (seccomp::compile(&profile).unwrap(), Evaluation::new(&profile));
        for call in calls(&profile, &arguments(&profile)) {
            prop_assert_eq!(run(&program.filter, &call), evaluation.verdict(&call), "{:x?}", call);
        }
    }
}
