//! `/sys/fs/cgroup` as a container sees it.

use std::process::Command;

use serde_json::json;

use crate::bundle::{Bundle, ID, Outcome};

pub(crate) const CASES: &[super::Case] = testbed::cases!(the_v2_tree_if_the_host_mounts_it);

/// Mounts the v2 hierarchy on `/sys/fs/cgroup` in a new mount namespace and executes pinrun. The kernel may have v1
/// hierarchies, too.
const UNIFIED: &str = r#"umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$0" "$@""#;

fn the_v2_tree_if_the_host_mounts_it() {
    let mut bundle = Bundle::new(&["cat", "/proc/self/mountinfo"]);
    let mounts = bundle.spec["mounts"].as_array_mut().expect("mounts is an array");
    mounts.push(json!({"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"]}));
    mounts.push(json!({"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["ro"]}));
    bundle.write();
    let pinrun = bundle.command(&["run", ID]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", UNIFIED]).arg(pinrun.get_program()).args(pinrun.get_args());
    command.current_dir(bundle.path(""));
    let text = Outcome::from(command.output().expect("run unshare")).ok();
    let mounts: Vec<&str> = text.lines().filter(|line| line.contains(" /sys/fs/cgroup")).collect();
    assert!(matches!(mounts[..], [line] if line.contains(" - cgroup2 ")), "{text}");
    bundle.assert_removed();
}
