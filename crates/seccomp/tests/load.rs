//! The kernel accepts the filters and applies them. A filter is per thread, so each test loads it in a new thread.

use oci::{Seccomp, SyscallRule};
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketType, socket},
    process::{PidfdFlags, getpid, pidfd_open},
};
use syscall::{
    namespace::{ThreadNamespace, unshare_thread},
    seccomp::load_filter,
};

fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join().expect("join the thread"))
}

#[test]
fn default_profile_loads() {
    let program = seccomp::compile(&seccomp::default_profile(&[])).unwrap();
    in_thread(|| {
        let start = std::time::Instant::now();
        load_filter(&program.filter, program.flags).expect("load the filter (needs CAP_SYS_ADMIN)");
        println!("loaded in {:?}", start.elapsed());
        let error = unshare_thread(ThreadNamespace::Network).expect_err("a new namespace must be refused");
        assert_eq!(error.raw_os_error(), Some(Errno::PERM.raw_os_error()));
        rustix::fs::stat("/").expect("other calls must be allowed");
    });
}

#[test]
fn default_profile_checks_arguments() {
    let program = seccomp::compile(&seccomp::default_profile(&[])).unwrap();
    in_thread(|| {
        let socket = |family| socket(AddressFamily::from_raw(family), SocketType::STREAM, None).map(drop);
        let (unix, alg, vsock) = (1, 38, 40);
        load_filter(&program.filter, program.flags).expect("load the filter (needs CAP_SYS_ADMIN)");
        assert_eq!(socket(unix), Ok(()));
        assert_eq!(socket(alg), Err(Errno::PERM));
        assert_eq!(socket(vsock), Err(Errno::PERM));
        // The C library tries clone3 first and falls back to clone only after ENOSYS.
        assert_eq!(std::thread::spawn(|| 7).join().expect("join the thread"), 7);
    });
}

#[test]
fn newer_calls_return_enosys() {
    let number = |name: &str| {
        let row =
            include_str!("../src/syscalls.txt").lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        row.split(' ').next()?.parse::<u32>().ok()
    };
    let pidfd = number("pidfd_open").expect("pidfd_open is in the table");
    // The default profile without calls newer than Linux 5.2: pidfd_open was added in 5.3.
    let mut profile = seccomp::default_profile(&[]);
    for rule in &mut profile.syscalls {
        rule.names.retain(|name| number(name).is_none_or(|number| number < pidfd));
    }
    let program = seccomp::compile(&profile).unwrap();
    in_thread(|| {
        load_filter(&program.filter, program.flags).expect("load the filter (needs CAP_SYS_ADMIN)");
        let opened = pidfd_open(getpid(), PidfdFlags::empty()).map(drop);
        assert_eq!(opened, Err(Errno::NOSYS));
    });
}

#[test]
fn longest_jumps_load() {
    // Alternating verdicts for every call give one range per number, and long jumps between them.
    let names = include_str!("../src/syscalls.txt").lines().filter_map(|line| line.split(' ').next());
    let rule = |(at, name): (usize, &str)| SyscallRule {
        names: vec![name.to_owned()],
        action: if at % 3 == 0 { "SCMP_ACT_TRACE" } else { "SCMP_ACT_LOG" }.into(),
        errno_ret: (at % 3 == 0).then_some(at as u32),
        args: Vec::new(),
    };
    let profile = Seccomp {
        default_action: "SCMP_ACT_ALLOW".into(),
        architectures: vec!["SCMP_ARCH_X86".into(), "SCMP_ARCH_X32".into()],
        syscalls: names.enumerate().filter(|(at, _)| at % 2 == 0).map(rule).collect(),
        ..Seccomp::default()
    };
    let program = seccomp::compile(&profile).unwrap();
    assert!(program.instructions() > 600, "{}", program.instructions());
    in_thread(|| load_filter(&program.filter, program.flags).map(drop)).expect("load the filter");
}
