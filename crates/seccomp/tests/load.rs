//! The kernel takes the filters and does what they say. A filter is a thread's own, so each test loads it in one.

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
    std::thread::scope(|scope| scope.spawn(work).join().expect("the thread ends"))
}

#[test]
fn default_profile_loads() {
    let program = seccomp::compile(&seccomp::default_profile(&[])).unwrap();
    in_thread(|| {
        let begun = std::time::Instant::now();
        load_filter(&program.filter, program.flags).expect("the kernel takes it (needs CAP_SYS_ADMIN)");
        println!("loaded in {:?}", begun.elapsed());
        let refused = unshare_thread(ThreadNamespace::Network).expect_err("a new namespace is refused");
        assert_eq!(refused.raw_os_error(), Some(Errno::PERM.raw_os_error()));
        rustix::fs::stat("/").expect("ordinary calls go on");
    });
}

#[test]
fn default_profile_looks_at_arguments() {
    let program = seccomp::compile(&seccomp::default_profile(&[])).unwrap();
    in_thread(|| {
        let socket = |family| socket(AddressFamily::from_raw(family), SocketType::STREAM, None).map(drop);
        let (unix, algorithms, machines) = (1, 38, 40);
        load_filter(&program.filter, program.flags).expect("the kernel takes it (needs CAP_SYS_ADMIN)");
        assert_eq!(socket(unix), Ok(()));
        assert_eq!(socket(algorithms), Err(Errno::PERM));
        assert_eq!(socket(machines), Err(Errno::PERM));
        // The C library asks for clone3 first and takes clone for ENOSYS only.
        assert_eq!(std::thread::spawn(|| 7).join().expect("the thread ends"), 7);
    });
}

#[test]
fn newer_calls_do_not_exist() {
    let number = |name: &str| {
        let row =
            include_str!("../src/syscalls.txt").lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        row.split(' ').next()?.parse::<u32>().ok()
    };
    let pidfd = number("pidfd_open").expect("in the table");
    // The default profile as one of Linux 5.2 would have been: pidfd_open came with 5.3.
    let mut profile = seccomp::default_profile(&[]);
    for rule in &mut profile.syscalls {
        rule.names.retain(|name| number(name).is_none_or(|number| number < pidfd));
    }
    let program = seccomp::compile(&profile).unwrap();
    in_thread(|| {
        load_filter(&program.filter, program.flags).expect("the kernel takes it (needs CAP_SYS_ADMIN)");
        let opened = pidfd_open(getpid(), PidfdFlags::empty()).map(drop);
        assert_eq!(opened, Err(Errno::NOSYS));
    });
}

#[test]
fn longest_jumps_load() {
    // Alternating verdicts for every call: as many ranges as there are numbers, and long ways between them.
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
    in_thread(|| load_filter(&program.filter, program.flags).map(drop)).expect("the kernel takes it");
}
