//! Attacks on the runtime's own process: its program, and the moment when it is in the container and not yet gone.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use oci_tests::{Case, Outcome, each_runtime, wait_until};

each_runtime!(
    cve_2019_5736_at_exec,
    cve_2019_5736_at_create,
    cve_2019_5736_works_on_a_weak_entry,
    cve_2016_9962_ptrace,
    cve_2022_29162_inheritable,
);

/// A copy of the runtime for the container to overwrite: the machine's own is not risked.
fn copy(case: &Case) -> (PathBuf, Vec<u8>) {
    let path = case.directory().join("runtime-copy");
    let bytes = fs::read(case.runtime.program()).expect("the runtime is readable");
    fs::write(&path, &bytes).expect("ours");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
    (path, bytes)
}

fn call(case: &Case, program: &std::path::Path, args: &[&str]) -> Outcome {
    let command = case.command_of(program, args);
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_str().expect("ASCII").to_owned())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    case.program("env", &words)
}

/// The container that waits for the runtime to come in, with more rights than the proof of concept had.
fn attacker<'a>(case: &'a Case) -> oci_tests::Container<'a> {
    let mut bundle = case.script("/bin/probe rewrite > /seen 2>&1");
    bundle.capabilities(&["CAP_DAC_OVERRIDE", "CAP_SYS_PTRACE", "CAP_SETUID", "CAP_SETGID", "CAP_KILL"]);
    let container = case.container(bundle);
    // The program that the runtime is made to execute: itself.
    for path in ["/bin/evil", "/bin/sh-of-the-image"] {
        fs::write(container.bundle.path(path), "#!/proc/self/exe\n").expect("ours");
        fs::set_permissions(container.bundle.path(path), fs::Permissions::from_mode(0o755)).expect("ours");
    }
    container.started();
    container
}

fn cve_2019_5736_at_exec(case: &Case) {
    let (program, bytes) = copy(case);
    let container = attacker(case);
    for _ in 0..5 {
        call(case, &program, &["exec", &container.id, "/bin/evil"]);
        call(case, &program, &["exec", &container.id, "/proc/self/exe"]);
        call(case, &program, &["exec", &container.id, "/bin/true"]);
    }
    assert!(fs::read(&program).expect("it is there") == bytes, "the runtime was overwritten");
    container.remove();
}

fn cve_2019_5736_at_create(case: &Case) {
    let (program, bytes) = copy(case);
    let container = attacker(case);
    let namespace = format!("/proc/{}/ns/pid", container.pid());
    for args in ["/bin/evil", "/proc/self/exe", "/bin/true"] {
        let mut bundle = case.bundle();
        fs::write(bundle.path("/bin/evil"), "#!/proc/self/exe\n").expect("ours");
        fs::set_permissions(bundle.path("/bin/evil"), fs::Permissions::from_mode(0o755)).expect("ours");
        bundle.args(&[args]);
        // Who attacks sees the new container's processes.
        bundle.namespace("pid", Some(&namespace));
        let second = case.container(bundle);
        let directory = second.bundle.directory.to_str().expect("ASCII");
        call(case, &program, &["run", "--bundle", directory, &second.id]);
        call(case, &program, &["delete", "--force", &second.id]);
    }
    assert!(fs::read(&program).expect("it is there") == bytes, "the runtime was overwritten");
    container.remove();
}

fn cve_2019_5736_works_on_a_weak_entry(case: &Case) {
    // The same container against programs that come in as they are: they are overwritten. All that comes in is a copy.
    let copied = |from: &str, name: &str| {
        let path = case.directory().join(name);
        fs::copy(from, &path).expect("the program is installed");
        path.to_str().expect("ASCII").to_owned()
    };
    let (weak, nsenter) = (copied("/bin/busybox", "weak"), copied("/usr/bin/nsenter", "weak-nsenter"));
    let container = attacker(case);
    let pid = container.pid().to_string();
    wait_until("the weak program is overwritten", || {
        // By `env`, which tells of it when an overwritten copy does not start any more.
        case.program("env", &[&nsenter, "--target", &pid, "--pid", &weak, "sleep", "0.2"]);
        [&weak, &nsenter].iter().any(|path| fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"#!/bin/owned")))
    });
    container.remove();
}

fn cve_2016_9962_ptrace(case: &Case) {
    let container = case.container(case.script("/bin/probe ptrace > /got 2>&1"));
    container.started();
    let got = || fs::read_to_string(container.bundle.path("/got")).unwrap_or_default();
    for _ in 0..20 {
        container.exec(&[], &["/bin/sleep", "0.05"]);
    }
    wait_until("it gets what is in the container already", || {
        container.exec(&[], &["/bin/sleep", "0.05"]);
        got().contains("sleep")
    });
    let others: Vec<String> = got().lines().filter(|line| !line.ends_with("sleep")).map(str::to_owned).collect();
    assert!(others.is_empty(), "the runtime was traced on its way in: {others:?}");
    container.remove();
}

fn cve_2022_29162_inheritable(case: &Case) {
    let container = case.container(case.script("cat /proc/self/status > /status; sleep 1000"));
    container.started();
    wait_until("the status is written", || {
        fs::read_to_string(container.bundle.path("/status")).is_ok_and(|text| text.contains("CapAmb"))
    });
    let first = fs::read_to_string(container.bundle.path("/status")).expect("it was written");
    for text in [first.as_str(), &container.inside("cat /proc/self/status")] {
        for set in ["CapInh", "CapAmb"] {
            assert!(text.contains(&format!("{set}:\t0000000000000000")), "{text}");
        }
    }
    container.remove();
}
