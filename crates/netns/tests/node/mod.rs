//! A throwaway node: each test runs again, alone in a process, in network and mount namespaces of its own, with a
//! `/run` of its own. Nothing it makes can reach the machine, and nothing can stay.

use std::process::Command;

const INSIDE: &str = "PINION_TEST_NODE";

/// Runs `body` in a node of its own. `name` is the test's.
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
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && said.contains("1 passed"), "{name} in its node: {}\n{said}", out.status);
}
