//! The compiler against libseccomp (driven as runc drives it) and against the plain meaning of a profile: all numbers,
//! all architectures, arguments around every value that a rule names.
#![cfg(target_arch = "x86_64")]

mod interpreter;
mod meaning;
mod reference;
mod samples;

use oci::{Seccomp, SeccompArg, SyscallRule};
use proptest::{prelude::ProptestConfig, prop_assert_eq, proptest};

use crate::{
    interpreter::{Call, run},
    meaning::Meaning,
    reference::{ARCHS, Reference},
    samples::{arguments, calls, known, profiles, rows, simple_profiles},
};

/// Compares all verdicts. x32's bit without x32 among the architectures is left to `meaning`, for number -1 differs.
fn same(profile: &Seccomp) -> Result<(), String> {
    let ours = seccomp::compile(profile).map_err(|error| error.to_string())?;
    let theirs = Reference::compile(profile);
    let x32 = profile.architectures.iter().any(|arch| arch == "SCMP_ARCH_X32");
    // A filter of ours has no section for calls that this machine's kernel never makes.
    let foreign = profile.architectures.iter().any(|arch| arch == "SCMP_ARCH_AARCH64");
    for call in calls(profile, &arguments(profile)) {
        if (!x32 && call.number >= 0x4000_0000) || (foreign && call.arch == Call::AARCH64) {
            continue;
        }
        let (our, their) = (run(&ours.filter, &call), theirs.verdict(&call));
        if our != their {
            return Err(format!("{call:x?}: {our:#x}, by libseccomp {their:#x}"));
        }
    }
    Ok(())
}

#[test]
fn numbers_agree() {
    let names: Vec<&str> = rows().map(|(name, _)| name).collect();
    for (column, arch) in ARCHS.iter().enumerate() {
        let mut both = 0;
        // Columns: x86_64, i386, x32.
        for ((name, numbers), theirs) in rows().zip(reference::numbers(arch, &names)) {
            let ours = numbers[column].map(|n| if *arch == "x32" { n | 0x4000_0000 } else { n });
            if let (Some(ours), Some(theirs)) = (ours, theirs) {
                assert_eq!(ours, theirs, "{name} on {arch}");
                both += 1;
            }
            assert!(theirs.is_none() || ours.is_some(), "{name} on {arch}: libseccomp has {theirs:?}");
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
        same(&known(&profile)).unwrap();
        profile.architectures.clear();
        same(&known(&profile)).unwrap();
    }
}

/// Index, operator, value, second value.
type Arg = (u32, &'static str, u64, u64);

/// A profile with several rules for one call, each with an errno of its own: 2, 3, ….
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
        assert_eq!(same(&rules(case)), Ok(()), "{case:?}");
    }
}

/// Where conditions of different actions overlap libseccomp has an order of its own (equality before the others, later
/// arguments first), which it does not promise. Here the first rule wins.
#[test]
fn of_overlapping_rules_the_first_wins() {
    let cases: [&[&[Arg]]; 2] = [&[&[(0, "LT", 10, 0)], &[(0, "EQ", 5, 0)]], &[&[(0, "EQ", 5, 0)], &[(1, "EQ", 5, 0)]]];
    for case in cases {
        let profile = rules(case);
        let call = Call { arch: Call::X86_64, number: 110, args: [5; 6] };
        assert_eq!(run(&seccomp::compile(&profile).unwrap().filter, &call), 0x0005_0002, "{case:?}");
        assert_eq!(Reference::compile(&profile).verdict(&call), 0x0005_0003, "{case:?}");
    }
}

/// i386 programs reach these calls by two ways. libseccomp opens socketcall whatever the arguments of the rule.
#[test]
fn socketcall_is_no_way_round() {
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
    assert_eq!(same(&profile), Ok(()));
    profile.syscalls.push(allow(&["socket"], vec![unix]));
    let ours = seccomp::compile(&profile).unwrap();
    let verdict = |number, first| run(&ours.filter, &Call { arch: Call::X86, number, args: [first, 0, 0, 0, 0, 0] });
    let (socketcall, socket, allowed, refused) = (102, 359, 0x7fff_0000, 0x0005_0001);
    assert_eq!([verdict(socket, 1), verdict(socket, 2)], [allowed, refused]);
    assert_eq!([verdict(socketcall, 1), verdict(socketcall, 2)], [refused, allowed], "socket, bind");
}

#[test]
fn default_profile_means_what_it_says() {
    let profile = seccomp::default_profile(&[]);
    let (ours, meaning) = (seccomp::compile(&profile).unwrap(), Meaning::new(&profile));
    for call in calls(&profile, &arguments(&profile)) {
        assert_eq!(run(&ours.filter, &call), meaning.verdict(&call), "{call:x?}");
    }
}

/// Figures for docs; run with `--nocapture`.
#[test]
fn default_profile_is_short() {
    let profile = seccomp::default_profile(&[]);
    seccomp::compile(&profile).unwrap();
    let begun = std::time::Instant::now();
    let ours = seccomp::compile(&profile).unwrap();
    let (took, theirs) = (begun.elapsed(), Reference::compile(&known(&profile)));
    println!("{} instructions in {took:?}", ours.instructions());
    println!("libseccomp: {} instructions in {} µs", theirs.filter.len() / 8, theirs.microseconds);
    assert!(ours.instructions() < theirs.filter.len() / 8);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_profiles_agree(profile in simple_profiles()) {
        prop_assert_eq!(same(&profile), Ok(()));
    }

    #[test]
    fn random_profiles_mean_what_they_say(profile in profiles()) {
        let (ours, meaning) = (seccomp::compile(&profile).unwrap(), Meaning::new(&profile));
        for call in calls(&profile, &arguments(&profile)) {
            prop_assert_eq!(run(&ours.filter, &call), meaning.verdict(&call), "{:x?}", call);
        }
    }
}
