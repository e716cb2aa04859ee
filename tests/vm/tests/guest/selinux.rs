//! `process.selinuxLabel` and `linux.mountLabel` where the kernel has a policy. It refuses nothing here (permissive,
//! nothing is labelled): what is tried is that the labels get where they belong.

use oci_tests::Case;
use serde_json::json;

// crun 1.8 does not start beside systemd's own hybrid of trees.
crate::tests_on!([pinrun Pinrun, runc Runc](
    the_process_has_its_label,
    a_command_has_the_label,
    mounts_have_theirs,
    a_label_that_is_none_is_refused,
));

pub(crate) const LABEL: &str = "unconfined_u:unconfined_r:unconfined_t:s0:c1,c2";

fn the_process_has_its_label(case: &Case) {
    let text = case.output("cat /proc/self/attr/current", |bundle| {
        bundle.spec["process"]["selinuxLabel"] = json!(LABEL);
    });
    assert_eq!(text.trim_end_matches(['\0', '\n']), LABEL);
}

fn a_command_has_the_label(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    bundle.spec["process"]["selinuxLabel"] = json!(LABEL);
    let container = case.container(bundle);
    container.started();
    let own = container.inside("cat /proc/self/attr/current");
    assert_eq!(own.trim_end_matches(['\0', '\n']), LABEL);
    let other = LABEL.replace("c1,c2", "c3,c4");
    let outcome = container.exec(&["--process-label", &other], &["cat", "/proc/self/attr/current"]);
    assert_eq!(outcome.ok().trim_end_matches(['\0', '\n']), other);
    container.remove();
}

fn mounts_have_theirs(case: &Case) {
    let label = "system_u:object_r:tmpfs_t:s0:c1,c2";
    let text = case.output("grep -E ' /dev(/shm)? ' /proc/self/mounts", |bundle| {
        bundle.spec["linux"]["mountLabel"] = json!(label);
    });
    for line in text.lines() {
        assert!(line.contains(&format!("context=\"{label}\"")) || line.contains(&format!("context={label}")), "{line}");
    }
    assert_eq!(text.lines().count(), 2, "{text}");
}

fn a_label_that_is_none_is_refused(case: &Case) {
    case.refused(&["label", "attr/exec", "keycreate"], |bundle| {
        bundle.spec["process"]["selinuxLabel"] = json!("no such label")
    });
}
