//! A throwaway node: each test runs again in a process of its own, in new network and mount namespaces with a new
//! `/run`. Nothing it creates can affect the machine or outlive the test.

use std::process::Command;

const INSIDE: &str = "PINION_TEST_NODE";

/// Runs `body` in a throwaway node. `name` is the name of the calling test.
pub(crate) fn on_a_node(name: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        rustix::mount::mount("tmpfs", "/run", "tmpfs", rustix::mount::MountFlags::empty(), None).expect("mount /run");
        body();
        return;
    }
    let out = Command::new("unshare")
        .args(["--net", "--mount", "--propagation", "private", "--"])
        .arg(std::env::current_exe().expect("own path"))
        .args(["--exact", name, "--nocapture", "--test-threads", "1"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare runs");
    let output = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && output.contains("1 passed"), "{name} in its node: {}\n{output}", out.status);
}
