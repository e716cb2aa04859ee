//! What a container sees on `/sys/fs/cgroup`.

use std::process::Command;

use serde_json::json;

use crate::bundle::{Bundle, ID, Outcome};

pub(crate) const CASES: &[super::Case] = crate::cases!(the_v2_tree_where_the_host_shows_it);

/// Puts the v2 tree on `/sys/fs/cgroup`, in a mount namespace of its own, and becomes pinrun; the kernel may have v1
/// trees.
const UNIFIED: &str = r#"umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$0" "$@""#;

fn the_v2_tree_where_the_host_shows_it() {
    let mut bundle = Bundle::new(&["cat", "/proc/self/mountinfo"]);
    let mounts = bundle.spec["mounts"].as_array_mut().expect("mounts");
    mounts.push(json!({"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"]}));
    mounts.push(json!({"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["ro"]}));
    bundle.write();
    let pinrun = bundle.command(&["run", ID]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", UNIFIED]).arg(pinrun.get_program()).args(pinrun.get_args());
    command.current_dir(bundle.path(""));
    let text = Outcome::from(command.output().expect("unshare")).ok();
    let shown: Vec<&str> = text.lines().filter(|line| line.contains(" /sys/fs/cgroup")).collect();
    assert!(matches!(shown[..], [line] if line.contains(" - cgroup2 ")), "{text}");
    bundle.is_gone();
}
