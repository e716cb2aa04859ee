//! Attacks by way of a `/proc` that is not the kernel's, and of `/dev/null` that is not a device.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use oci_tests::{Bundle, Case, Console, Mount, each_runtime};
use serde_json::json;

each_runtime!(
    cve_2025_31133_masked_path,
    cve_2025_52565_console,
    cve_2025_52565_console_of_a_false_pts,
    cve_2025_52881_sysctl,
    cve_2019_16884_volume_on_proc,
    cve_2019_19921_proc_is_a_symlink,
    procfs_mounted_over,
);

/// What the attacks would like to be handed: a file of the kernel that no container may write.
const KERNEL_FILE: &str = "/proc/sys/kernel/core_pattern";

fn kernel_file() -> String {
    fs::read_to_string(KERNEL_FILE).expect("procfs")
}

/// A `/dev` that another container of the pod has prepared.
fn shared_dev(bundle: &mut Bundle) -> PathBuf {
    let directory = bundle.directory.join("dev");
    fs::create_dir_all(&directory).expect("ours");
    let mounts = bundle.spec["mounts"].as_array_mut().expect("mounts");
    mounts.retain(|mount| !mount["destination"].as_str().expect("a path").starts_with("/dev"));
    bundle.mount("/dev", "bind", directory.to_str().expect("ASCII"), &["rbind", "rw"]);
    directory
}

fn cve_2025_31133_masked_path(case: &Case) {
    // What is masked would become a way to the kernel's file, or stay visible. Nothing is written: seeing it is enough.
    let script = "cat /etc/group; grep ' /etc/group ' /proc/self/mountinfo; echo ran";
    let mut bundle = case.script(script);
    let dev = shared_dev(&mut bundle);
    symlink(KERNEL_FILE, dev.join("null")).expect("ours");
    bundle.spec["linux"]["maskedPaths"] = json!(["/etc/group"]);
    let outcome = case.container(bundle).run();
    if outcome.stdout.contains("ran") {
        assert!(!outcome.stdout.contains("root:x:0"), "the path is not masked: {outcome:?}");
        assert!(!outcome.stdout.contains(" - proc "), "the mask is a file of procfs: {outcome:?}");
    }
}

fn cve_2025_52565_console(case: &Case) {
    let (victim, _) = crate::victim(case);
    let console = Console::listen(case);
    let mut bundle = case.script("sleep 1000");
    let dev = shared_dev(&mut bundle);
    symlink(victim.join("file"), dev.join("console")).expect("ours");
    bundle.spec["process"]["terminal"] = json!(true);
    let container = case.container(bundle);
    let outcome = container.create_with(&["--console-socket", console.path()]);
    if outcome.code == 0 {
        container.remove();
    }
    crate::unharmed(case);
}

fn cve_2025_52565_console_of_a_false_pts(case: &Case) {
    let before = kernel_file();
    let console = Console::listen(case);
    let mut bundle = case.script("cat /proc/self/mountinfo > /mounts; echo >> /mounts; sleep 1000");
    let dev = shared_dev(&mut bundle);
    fs::create_dir(dev.join("pts")).expect("ours");
    symlink("/dev/pts/ptmx", dev.join("ptmx")).expect("ours");
    for number in 0..32 {
        symlink(KERNEL_FILE, dev.join("pts").join(number.to_string())).expect("ours");
    }
    bundle.spec["process"]["terminal"] = json!(true);
    let container = case.container(bundle);
    let outcome = container.create_with(&["--console-socket", console.path()]);
    if outcome.code == 0 {
        container.start().ok();
        let mounts = Mount::parse(&container.line("/mounts"));
        let on = mounts.iter().find(|mount| mount.at == "/dev/console");
        assert!(on.is_none_or(|mount| mount.kind == "devpts"), "the console is {on:?}");
        container.remove();
    }
    assert_eq!(kernel_file(), before);
}

fn cve_2025_52881_sysctl(case: &Case) {
    // The write of net.ipv4.ip_forward is led to a file of the attacker's choice.
    let mut bundle = case.script("cat /proc/sys/net/ipv4/ip_forward");
    let false_net = bundle.directory.join("false");
    fs::create_dir_all(false_net.join("ipv4")).expect("ours");
    fs::write(false_net.join("ipv4/ip_forward"), "untouched\n").expect("ours");
    bundle.mount("/proc/sys/net", "bind", false_net.to_str().expect("ASCII"), &["bind", "rw"]);
    bundle.spec["linux"]["sysctl"] = json!({ "net.ipv4.ip_forward": "1" });
    case.container(bundle).run();
    let text = fs::read_to_string(false_net.join("ipv4/ip_forward")).expect("it is there");
    assert_eq!(text, "untouched\n", "the runtime wrote where the attacker wanted");
}

fn cve_2019_16884_volume_on_proc(case: &Case) {
    let mut bundle = case.script("true");
    let fake = bundle.directory.join("fake-proc");
    for directory in ["self/attr", "self/task", "sys/net/ipv4", "self/fd"] {
        fs::create_dir_all(fake.join(directory)).expect("ours");
    }
    for file in ["self/attr/exec", "self/attr/current", "self/oom_score_adj", "self/uid_map", "sys/net/ipv4/ip_forward"]
    {
        fs::write(fake.join(file), "untouched\n").expect("ours");
    }
    bundle.mount("/proc", "bind", fake.to_str().expect("ASCII"), &["rbind", "rw"]);
    bundle.spec["process"]["oomScoreAdj"] = json!(100);
    bundle.spec["linux"]["sysctl"] = json!({ "net.ipv4.ip_forward": "1" });
    case.container(bundle).run();
    for file in ["self/attr/exec", "self/attr/current", "self/oom_score_adj", "self/uid_map", "sys/net/ipv4/ip_forward"]
    {
        assert_eq!(fs::read_to_string(fake.join(file)).expect("it is there"), "untouched\n", "{file}");
    }
}

fn cve_2019_19921_proc_is_a_symlink(case: &Case) {
    let bundle = case.script("stat -f -c %T /proc; cat /tmp/fake/self/attr/exec; ls /tmp/fake");
    fs::remove_dir(bundle.path("/proc")).expect("ours");
    fs::create_dir_all(bundle.path("/tmp/fake/self/attr")).expect("ours");
    fs::write(bundle.path("/tmp/fake/self/attr/exec"), "untouched\n").expect("ours");
    symlink("/tmp/fake", bundle.path("/proc")).expect("ours");
    let container = case.container(bundle);
    container.run();
    let text = fs::read_to_string(container.bundle.path("/tmp/fake/self/attr/exec")).expect("it is there");
    assert_eq!(text, "untouched\n");
}

fn procfs_mounted_over(case: &Case) {
    // A tmpfs over a part of /proc would hide what the masks are for, and swallow what is written.
    for (path, kind) in [("/proc/self/attr", "tmpfs"), ("/proc/sys", "tmpfs"), ("/proc", "tmpfs")] {
        let mut bundle = case.script("cat /proc/sys/net/ipv4/ip_forward 2>/dev/null; true");
        bundle.mount(path, kind, "tmpfs", &[]);
        bundle.spec["linux"]["sysctl"] = json!({ "net.ipv4.ip_forward": "1" });
        // An error, or the kernel's own file was written before it was hidden.
        let outcome = case.container(bundle).run();
        assert!(outcome.code != 0 || !outcome.stdout.contains('0'), "{path}: {outcome:?}");
    }
}
