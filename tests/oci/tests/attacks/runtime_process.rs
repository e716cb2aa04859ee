//! Attacks on the process of the runtime: on its program file, and on the process while it is in the container.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use oci_tests::{Case, Outcome, each_runtime, wait_until};

each_runtime!(
    cve_2019_5736_at_exec,
    cve_2019_5736_at_create,
    cve_2019_5736_works_on_unprotected_programs,
    cve_2016_9962_ptrace,
    cve_2022_29162_inheritable,
);

/// Copies the runtime, so that the container can overwrite the copy only. Returns its path and content.
fn copy_runtime(case: &Case) -> (PathBuf, Vec<u8>) {
    let path = case.directory().join("runtime-copy");
    let bytes = fs::read(case.runtime.program()).expect("read the runtime");
    fs::write(&path, &bytes).expect("write a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("change the mode");
    (path, bytes)
}

fn call(case: &Case, program: &std::path::Path, args: &[&str]) -> Outcome {
    let command = case.command_for(program, args);
    let arguments: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|argument| argument.to_str().expect("the path is ASCII").to_owned())
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    case.program("env", &arguments)
}

/// Starts a container that waits for the runtime to enter it, with more capabilities than the proof of concept had.
fn attacker<'a>(case: &'a Case) -> oci_tests::Container<'a> {
    let mut bundle = case.script("/bin/probe rewrite > /seen 2>&1");
    bundle.capabilities(&["CAP_DAC_OVERRIDE", "CAP_SYS_PTRACE", "CAP_SETUID", "CAP_SETGID", "CAP_KILL"]);
    let container = case.container(bundle);
    // These programs make the runtime execute itself.
    for path in ["/bin/evil", "/bin/sh-of-the-image"] {
        fs::write(container.bundle.path(path), "#!/proc/self/exe\n").expect("write a file");
        fs::set_permissions(container.bundle.path(path), fs::Permissions::from_mode(0o755)).expect("change the mode");
    }
    container.create_and_start();
    container
}

fn cve_2019_5736_at_exec(case: &Case) {
    let (program, bytes) = copy_runtime(case);
    let container = attacker(case);
    for _ in 0..5 {
        call(case, &program, &["exec", &container.id, "/bin/evil"]);
        call(case, &program, &["exec", &container.id, "/proc/self/exe"]);
        call(case, &program, &["exec", &container.id, "/bin/true"]);
    }
    assert!(fs::read(&program).expect("read the runtime") == bytes, "the runtime was overwritten");
    container.remove();
}

fn cve_2019_5736_at_create(case: &Case) {
    let (program, bytes) = copy_runtime(case);
    let container = attacker(case);
    let namespace = format!("/proc/{}/ns/pid", container.pid());
    for args in ["/bin/evil", "/proc/self/exe", "/bin/true"] {
        let mut bundle = case.bundle();
        fs::write(bundle.path("/bin/evil"), "#!/proc/self/exe\n").expect("write a file");
        fs::set_permissions(bundle.path("/bin/evil"), fs::Permissions::from_mode(0o755)).expect("change the mode");
        bundle.args(&[args]);
        // The attacker shares the PID namespace, so that it sees the processes of the new container.
        bundle.namespace("pid", Some(&namespace));
        let second = case.container(bundle);
        let directory = second.bundle.directory.to_str().expect("the path is ASCII");
        call(case, &program, &["run", "--bundle", directory, &second.id]);
        call(case, &program, &["delete", "--force", &second.id]);
    }
    assert!(fs::read(&program).expect("read the runtime") == bytes, "the runtime was overwritten");
    container.remove();
}

fn cve_2019_5736_works_on_unprotected_programs(case: &Case) {
    // Unprotected programs that enter the same container are overwritten. Only copies enter it.
    let copy = |from: &str, name: &str| {
        let path = case.directory().join(name);
        fs::copy(from, &path).expect("copy the program");
        path.to_str().expect("the path is ASCII").to_owned()
    };
    let (busybox, nsenter) = (copy("/bin/busybox", "copy-of-busybox"), copy("/usr/bin/nsenter", "copy-of-nsenter"));
    let container = attacker(case);
    let pid = container.pid().to_string();
    wait_until("an unprotected program is overwritten", || {
        // `env` exits with an error if an overwritten copy cannot be executed; spawning the copy directly would panic.
        case.program("env", &[&nsenter, "--target", &pid, "--pid", &busybox, "sleep", "0.2"]);
        [&busybox, &nsenter].iter().any(|path| fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"#!/bin/owned")))
    });
    container.remove();
}

fn cve_2016_9962_ptrace(case: &Case) {
    let container = case.container(case.script("/bin/probe ptrace > /got 2>&1"));
    container.create_and_start();
    let traced = || fs::read_to_string(container.bundle.path("/got")).unwrap_or_default();
    for _ in 0..20 {
        container.exec(&[], &["/bin/sleep", "0.05"]);
    }
    wait_until("a process of the container is traced", || {
        container.exec(&[], &["/bin/sleep", "0.05"]);
        traced().contains("sleep")
    });
    let others: Vec<String> = traced().lines().filter(|line| !line.ends_with("sleep")).map(str::to_owned).collect();
    assert!(others.is_empty(), "the runtime was traced while it entered the container: {others:?}");
    container.remove();
}

fn cve_2022_29162_inheritable(case: &Case) {
    let container = case.container(case.script("cat /proc/self/status > /status; sleep 1000"));
    container.create_and_start();
    wait_until("the container has written its status", || {
        fs::read_to_string(container.bundle.path("/status")).is_ok_and(|text| text.contains("CapAmb"))
    });
    let init_status = fs::read_to_string(container.bundle.path("/status")).expect("the file was written");
    for text in [init_status.as_str(), &container.exec_script("cat /proc/self/status")] {
        for set in ["CapInh", "CapAmb"] {
            assert!(text.contains(&format!("{set}:\t0000000000000000")), "{text}");
        }
    }
    container.remove();
}
