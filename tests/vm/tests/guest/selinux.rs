//! `process.selinuxLabel` and `linux.mountLabel` on a kernel with a policy. The mode is permissive and files are not
//! labelled, so nothing is denied: the tests check that the labels are set.

use oci_tests::Case;
use serde_json::json;

// crun 1.8 does not start with systemd's hybrid cgroup hierarchy.
crate::tests_on!([pinrun Pinrun, runc Runc](
    the_process_has_its_label,
    an_execd_process_has_its_label,
    mounts_have_the_label,
    an_invalid_label_is_refused,
));

pub(crate) const LABEL: &str = "unconfined_u:unconfined_r:unconfined_t:s0:c1,c2";

fn the_process_has_its_label(case: &Case) {
    let text = case.output("cat /proc/self/attr/current", |bundle| {
        bundle.spec["process"]["selinuxLabel"] = json!(LABEL);
    });
    assert_eq!(text.trim_end_matches(['\0', '\n']), LABEL);
}

fn an_execd_process_has_its_label(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    bundle.spec["process"]["selinuxLabel"] = json!(LABEL);
    let container = case.container(bundle);
    container.create_and_start();
    let default = container.exec_script("cat /proc/self/attr/current");
    assert_eq!(default.trim_end_matches(['\0', '\n']), LABEL);
    let other = LABEL.replace("c1,c2", "c3,c4");
    let outcome = container.exec(&["--process-label", &other], &["cat", "/proc/self/attr/current"]);
    assert_eq!(outcome.ok().trim_end_matches(['\0', '\n']), other);
    container.remove();
}

fn mounts_have_the_label(case: &Case) {
    let label = "system_u:object_r:tmpfs_t:s0:c1,c2";
    let text = case.output("grep -E ' /dev(/shm)? ' /proc/self/mounts", |bundle| {
        bundle.spec["linux"]["mountLabel"] = json!(label);
    });
    for line in text.lines() {
        assert!(line.contains(&format!("context=\"{label}\"")) || line.contains(&format!("context={label}")), "{line}");
    }
    assert_eq!(text.lines().count(), 2, "{text}");
}

fn an_invalid_label_is_refused(case: &Case) {
    case.assert_refused(&["label", "attr/exec", "keycreate"], |bundle| {
        bundle.spec["process"]["selinuxLabel"] = json!("no such label")
    });
}
