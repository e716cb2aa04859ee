//! The compiler against libseccomp (driven as runc drives it) and against the plain meaning of a profile: all numbers, all
//! architectures, arguments around every value that a rule names.
#![cfg(target_arch = "x86_64")]

mod interpreter;
mod meaning;
mod reference;
mod samples;

use oci::Seccomp;
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
    let sets: [&[&str]; 4] =
        [&[], &["CAP_SYS_ADMIN"], &["CAP_SYS_PTRACE", "CAP_SYS_TIME", "CAP_BPF"], &["CAP_SYS_NICE", "CAP_SYS_CHROOT"]];
    for capabilities in sets {
        let capabilities: Vec<String> = capabilities.iter().map(|name| (*name).to_owned()).collect();
        let mut profile = seccomp::default_profile(&capabilities);
        same(&known(&profile)).unwrap();
        profile.architectures.clear();
        same(&known(&profile)).unwrap();
    }
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
