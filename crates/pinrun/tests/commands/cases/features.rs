//! `features`, `spec`, and errors of `checkpoint` and `restore`.

use std::fs;

use serde_json::Value;

use crate::bundle::{Bundle, ID};

pub(crate) const CASES: &[super::Case] = testbed::cases!(
    features_are_complete,
    a_spec_is_written_once,
    a_rootless_spec_maps_the_user,
    a_missing_criu_is_reported,
    impossible_checkpoints_are_refused,
);

fn features_are_complete() {
    let bundle = Bundle::new(&["true"]);
    let features: Value = serde_json::from_str(&bundle.pinrun(&["features"]).ok()).expect("parse the JSON");
    assert_eq!(features["ociVersionMax"], "1.3.0");
    let linux = &features["linux"];
    for (list, word) in [
        (&features["hooks"], "createContainer"),
        (&features["mountOptions"], "rnosuid"),
        (&linux["namespaces"], "time"),
        (&linux["capabilities"], "CAP_BPF"),
        (&linux["seccomp"]["actions"], "SCMP_ACT_NOTIFY"),
        (&linux["seccomp"]["operators"], "SCMP_CMP_MASKED_EQ"),
        (&linux["seccomp"]["archs"], "SCMP_ARCH_X86_64"),
    ] {
        assert!(list.as_array().expect("the value is an array").iter().any(|known| known == word), "{word}: {list}");
    }
    for key in ["cgroup", "apparmor", "selinux", "intelRdt", "memoryPolicy", "mountExtensions", "netDevices"] {
        assert!(linux[key].is_object(), "{key}");
    }
}

fn a_spec_is_written_once() {
    let bundle = Bundle::new(&["true"]);
    bundle.pinrun(&["spec"]).failed("exists");
    fs::remove_file(bundle.path("config.json")).expect("access config.json");
    bundle.pinrun(&["spec"]).ok();
    let text = fs::read_to_string(bundle.path("config.json")).expect("access config.json");
    let mut spec: Value = serde_json::from_str(&text).expect("parse the JSON");
    assert_eq!((spec["process"]["args"][0].as_str(), spec["root"]["readonly"].as_bool()), (Some("sh"), Some(true)));
    // The generated spec can be run.
    spec["process"]["terminal"] = false.into();
    spec["process"]["args"] = serde_json::json!(["echo", "up"]);
    spec["process"]["env"] = serde_json::json!(["PATH=/bin"]);
    spec["linux"]["cgroupsPath"] = bundle.group.as_str().into();
    fs::write(bundle.path("config.json"), spec.to_string()).expect("access config.json");
    assert_eq!(bundle.pinrun(&["run", ID]).ok(), "up\n");
}

fn a_rootless_spec_maps_the_user() {
    let bundle = Bundle::new(&["true"]);
    fs::create_dir(bundle.path("other")).expect("create a directory");
    bundle.pinrun(&["spec", "--rootless", "--bundle", "other"]).ok();
    let text = fs::read_to_string(bundle.path("other/config.json")).expect("access config.json");
    let spec: Value = serde_json::from_str(&text).expect("parse the JSON");
    assert_eq!(spec["linux"]["uidMappings"][0]["hostID"], 0);
    assert!(spec["linux"]["resources"].is_null());
}

fn a_missing_criu_is_reported() {
    let bundle = Bundle::new(&["sleep", "1000"]);
    bundle.pinrun(&["run", "-d", ID]).ok();
    let installed = ["/usr/sbin", "/usr/local/sbin"]
        .iter()
        .any(|directory| fs::exists(format!("{directory}/criu")).expect("look for criu"));
    let outcome =
        bundle.command(&["checkpoint", "--leave-running", ID]).env("PATH", "/nowhere").output().expect("run pinrun");
    let stderr = String::from_utf8_lossy(&outcome.stderr).into_owned();
    // If criu is installed, the result depends on the kernel, which may be too new for it.
    assert!(installed || stderr.contains("install the package criu"), "{stderr}");
    assert!(outcome.status.success() || stderr.contains("checkpoint container one: criu"), "{stderr}");
    assert_eq!(bundle.status(), "running");
    bundle.pinrun(&["delete", "--force", ID]).ok();
    bundle.assert_removed();
}

fn impossible_checkpoints_are_refused() {
    let bundle = Bundle::new(&["sleep", "1000"]);
    bundle.pinrun(&["checkpoint", ID]).failed("container does not exist");
    bundle.pinrun(&["restore", "--image-path", "absent", ID]).failed("absent");
    bundle.pinrun(&["create", ID]).ok();
    bundle.pinrun(&["checkpoint", ID]).failed("cannot be checkpointed in created state");
    bundle.pinrun(&["start", ID]).ok();
    bundle.pinrun(&["checkpoint", "--parent-path", "/x", ID]).failed("must be relative");
    bundle.pinrun(&["checkpoint", "--page-server", "x", ID]).failed("ADDRESS:PORT");
    bundle.pinrun(&["checkpoint", "--manage-cgroups-mode", "x", ID]).failed("manage-cgroups-mode");
    bundle.pinrun(&["checkpoint", "--empty-ns", "pid", ID]).failed("empty-ns");
    bundle.pinrun(&["delete", "--force", ID]).ok();
    bundle.assert_removed();
}
