//! Units and cgroups that nothing needs anymore are removed: by `pinion reset`, after a change of the driver, and if
//! systemd refused it at first.

use std::{fs, path::Path, time::Duration};

use serde_json::json;
use testbed::wait_until;

use super::{Running, container, pod, start, systemctl, wait_for_unit};
use crate::node::{Node, ok};

const SYSTEMD: &str = "[cgroup]\ndriver = \"systemd\"\n";
const CGROUPFS: &str = "[cgroup]\ndriver = \"cgroupfs\"\n";
/// Longer than the interval between two audits.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(180);

fn run(node: &Node, name: &str) -> Running {
    Running::start(node, &pod(node, name, ""), &container("sleep 1000", &json!({})))
}

#[test]
fn a_reset_leaves_no_units() {
    let mut node = start("reset", 1);
    let units: Vec<String> = (0..8)
        .map(|number| run(&node, &format!("p{number}")))
        .flat_map(|running| [format!("reset-pod{}.slice", running.pod), running.unit])
        .collect();
    for unit in &units {
        wait_for_unit(unit, "ActiveState", "active");
    }
    ok(node.reset());
    // The jobs of systemd may not have ended.
    for unit in &units {
        wait_for_unit(unit, "LoadState", "not-found");
    }
    wait_for_unit("reset.slice", "ActiveState", "inactive");
    assert!(!Path::new("/sys/fs/cgroup/reset.slice").exists());
}

#[test]
fn the_parent_of_the_earlier_driver_is_removed_with_its_last_pod() {
    let parents = [Path::new("/sys/fs/cgroup/switched"), Path::new("/sys/fs/cgroup/switched.slice")];
    let mut node = Node::start_with("switched", 0, CGROUPFS);
    for (tables, earlier, later) in [(SYSTEMD, parents[0], parents[1]), (CGROUPFS, parents[1], parents[0])] {
        let of_earlier = ok(node.crictl(&["runp", &node.file("pod.json", &pod(&node, "earlier", ""))]));
        let config = node.file("container.json", &container("sleep 1000", &json!({})));
        let id = ok(node.crictl(&["create", &of_earlier, &config, &node.file("pod.json", &pod(&node, "earlier", ""))]));
        ok(node.crictl(&["start", &id]));
        assert!(earlier.exists());
        node.restart_with(tables);
        let of_later = run(&node, "later");
        assert!(earlier.exists() && later.exists(), "the pods of both drivers run");
        ok(node.crictl(&["rmp", "-f", &of_earlier]));
        wait_until("the parent of the earlier driver is gone", AUDIT_TIMEOUT, || !earlier.exists());
        assert_eq!(ok(node.crictl(&["exec", "-s", &of_later.id, "echo", "alive"])), "alive");
        ok(node.crictl(&["rmp", "-f", &of_later.pod]));
    }
}

#[test]
fn a_stop_that_systemd_refused_is_repeated() {
    // Drop-ins of a prefix apply to all slices of the pods.
    let drop_in = Path::new("/run/systemd/system/refusal-.slice.d/refuse.conf");
    fs::create_dir_all(drop_in.parent().expect("a directory")).expect("created");
    fs::write(drop_in, "[Unit]\nRefuseManualStop=yes\n").expect("written");
    systemctl(&["daemon-reload"]);
    let node = start("refusal", 9);
    let running = run(&node, "p");
    let slice = format!("refusal-pod{}.slice", running.pod);
    wait_for_unit(&running.unit, "ActiveState", "active");
    wait_for_unit(&slice, "RefuseManualStop", "yes");
    ok(node.crictl(&["rmp", "-f", &running.pod]));
    wait_for_unit(&running.unit, "LoadState", "not-found");
    assert_eq!(super::property(&slice, "ActiveState"), "active", "systemd refuses to stop it");
    fs::remove_file(drop_in).expect("removed");
    systemctl(&["daemon-reload"]);
    wait_until("the slice is gone", AUDIT_TIMEOUT, || super::property(&slice, "LoadState") == "not-found");
}
