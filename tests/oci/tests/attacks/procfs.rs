//! Attacks with a `/proc` that is not a procfs, and with a `/dev/null` or `/dev/console` that is not a device.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use oci_tests::{Bundle, Case, Console, Mount, each_runtime};
use serde_json::json;

each_runtime!(
    cve_2025_31133_masked_path,
    cve_2025_52565_console,
    cve_2025_52565_console_with_a_fake_pts,
    cve_2025_52881_sysctl,
    cve_2019_16884_volume_on_proc,
    cve_2019_19921_proc_is_a_symlink,
    procfs_mounted_over,
);

/// The target of the attacks: a file of the kernel that no container may write.
const KERNEL_FILE: &str = "/proc/sys/kernel/core_pattern";

fn kernel_file() -> String {
    fs::read_to_string(KERNEL_FILE).expect("read a file of /proc")
}

/// Mounts a `/dev` that another container of the pod could have prepared. Returns its directory on the host.
fn shared_dev(bundle: &mut Bundle) -> PathBuf {
    let directory = bundle.directory.join("dev");
    fs::create_dir_all(&directory).expect("create a directory");
    let mounts = bundle.spec["mounts"].as_array_mut().expect("mounts");
    mounts.retain(|mount| !mount["destination"].as_str().expect("a path").starts_with("/dev"));
    bundle.mount("/dev", "bind", directory.to_str().expect("the path is ASCII"), &["rbind", "rw"]);
    directory
}

fn cve_2025_31133_masked_path(case: &Case) {
    // The masked path would become the kernel's file, or stay visible. The check does not need to write to it.
    let script = "cat /etc/group; grep ' /etc/group ' /proc/self/mountinfo; echo ran";
    let mut bundle = case.script(script);
    let dev = shared_dev(&mut bundle);
    symlink(KERNEL_FILE, dev.join("null")).expect("create a symlink");
    bundle.spec["linux"]["maskedPaths"] = json!(["/etc/group"]);
    let outcome = case.container(bundle).run();
    if outcome.stdout.contains("ran") {
        assert!(!outcome.stdout.contains("root:x:0"), "the path is not masked: {outcome:?}");
        assert!(!outcome.stdout.contains(" - proc "), "the path is masked with a file of procfs: {outcome:?}");
    }
}

fn cve_2025_52565_console(case: &Case) {
    let (victim, _) = crate::victim(case);
    let console = Console::listen(case);
    let mut bundle = case.script("sleep 1000");
    let dev = shared_dev(&mut bundle);
    symlink(victim.join("file"), dev.join("console")).expect("create a symlink");
    bundle.spec["process"]["terminal"] = json!(true);
    let container = case.container(bundle);
    let outcome = container.create_with(&["--console-socket", console.path()]);
    if outcome.code == 0 {
        container.remove();
    }
    crate::assert_victim_unchanged(case);
}

fn cve_2025_52565_console_with_a_fake_pts(case: &Case) {
    let before = kernel_file();
    let console = Console::listen(case);
    let mut bundle = case.script("cat /proc/self/mountinfo > /mounts; echo >> /mounts; sleep 1000");
    let dev = shared_dev(&mut bundle);
    fs::create_dir(dev.join("pts")).expect("create a directory");
    symlink("/dev/pts/ptmx", dev.join("ptmx")).expect("create a symlink");
    for number in 0..32 {
        symlink(KERNEL_FILE, dev.join("pts").join(number.to_string())).expect("create a symlink");
    }
    bundle.spec["process"]["terminal"] = json!(true);
    let container = case.container(bundle);
    let outcome = container.create_with(&["--console-socket", console.path()]);
    if outcome.code == 0 {
        container.start().ok();
        let mounts = Mount::parse(&container.wait_for_line("/mounts"));
        let console = mounts.iter().find(|mount| mount.mount_point == "/dev/console");
        assert!(console.is_none_or(|mount| mount.kind == "devpts"), "/dev/console is not a pty: {console:?}");
        container.remove();
    }
    assert_eq!(kernel_file(), before);
}

fn cve_2025_52881_sysctl(case: &Case) {
    // The write of net.ipv4.ip_forward would go to a file that the attacker has chosen.
    let mut bundle = case.script("cat /proc/sys/net/ipv4/ip_forward");
    let fake_net = bundle.directory.join("fake");
    fs::create_dir_all(fake_net.join("ipv4")).expect("create a directory");
    fs::write(fake_net.join("ipv4/ip_forward"), "untouched\n").expect("write a file");
    bundle.mount("/proc/sys/net", "bind", fake_net.to_str().expect("the path is ASCII"), &["bind", "rw"]);
    bundle.spec["linux"]["sysctl"] = json!({ "net.ipv4.ip_forward": "1" });
    case.container(bundle).run();
    let text = fs::read_to_string(fake_net.join("ipv4/ip_forward")).expect("the file exists");
    assert_eq!(text, "untouched\n", "the runtime wrote to the attacker's file");
}

fn cve_2019_16884_volume_on_proc(case: &Case) {
    let mut bundle = case.script("true");
    let fake = bundle.directory.join("fake-proc");
    for directory in ["self/attr", "self/task", "sys/net/ipv4", "self/fd"] {
        fs::create_dir_all(fake.join(directory)).expect("create a directory");
    }
    for file in ["self/attr/exec", "self/attr/current", "self/oom_score_adj", "self/uid_map", "sys/net/ipv4/ip_forward"]
    {
        fs::write(fake.join(file), "untouched\n").expect("write a file");
    }
    bundle.mount("/proc", "bind", fake.to_str().expect("the path is ASCII"), &["rbind", "rw"]);
    bundle.spec["process"]["oomScoreAdj"] = json!(100);
    bundle.spec["linux"]["sysctl"] = json!({ "net.ipv4.ip_forward": "1" });
    case.container(bundle).run();
    for file in ["self/attr/exec", "self/attr/current", "self/oom_score_adj", "self/uid_map", "sys/net/ipv4/ip_forward"]
    {
        assert_eq!(fs::read_to_string(fake.join(file)).expect("the file exists"), "untouched\n", "{file}");
    }
}

fn cve_2019_19921_proc_is_a_symlink(case: &Case) {
    let bundle = case.script("stat -f -c %T /proc; cat /tmp/fake/self/attr/exec; ls /tmp/fake");
    fs::remove_dir(bundle.path("/proc")).expect("remove a directory");
    fs::create_dir_all(bundle.path("/tmp/fake/self/attr")).expect("create a directory");
    fs::write(bundle.path("/tmp/fake/self/attr/exec"), "untouched\n").expect("write a file");
    symlink("/tmp/fake", bundle.path("/proc")).expect("create a symlink");
    let container = case.container(bundle);
    container.run();
    let text = fs::read_to_string(container.bundle.path("/tmp/fake/self/attr/exec")).expect("the file exists");
    assert_eq!(text, "untouched\n");
}

fn procfs_mounted_over(case: &Case) {
    // A tmpfs over a part of /proc would bypass the masks, and discard what the runtime writes there.
    for (path, kind) in [("/proc/self/attr", "tmpfs"), ("/proc/sys", "tmpfs"), ("/proc", "tmpfs")] {
        let mut bundle = case.script("cat /proc/sys/net/ipv4/ip_forward 2>/dev/null; true");
        bundle.mount(path, kind, "tmpfs", &[]);
        bundle.spec["linux"]["sysctl"] = json!({ "net.ipv4.ip_forward": "1" });
        // Either the runtime fails, or it wrote the sysctl before the tmpfs hid the file.
        let outcome = case.container(bundle).run();
        assert!(outcome.code != 0 || !outcome.stdout.contains('0'), "{path}: {outcome:?}");
    }
}
