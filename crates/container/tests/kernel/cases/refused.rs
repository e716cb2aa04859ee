//! Invalid specs: the error names the property, and nothing is created.

use container::{ErrorKind, Plan};
use serde_json::{Value, json};

use crate::{Case, bundle, node::Node};

pub(crate) const CASES: &[Case] = testbed::cases![bad_specs, no_cgroup_left_behind, threads_are_refused];

/// JSON pointer, invalid value, and a part of the expected error.
fn table() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("/process/args", json!([]), "process.args"),
        ("/process/args/0", json!("a\u{0}b"), "process.args: \"a\\0b\" has a NUL byte"),
        ("/process/cwd", json!("tmp"), "process.cwd: \"tmp\" is not absolute"),
        ("/process/env", json!(["PATH"]), "process.env: \"PATH\" is not NAME=value"),
        ("/process/rlimits", json!([{"type": "RLIMIT_X", "soft": 1, "hard": 1}]), "unknown type \"RLIMIT_X\""),
        ("/process/oomScoreAdj", json!(2000), "process.oomScoreAdj: 2000"),
        ("/process/user/umask", json!(0o1000), "process.user.umask"),
        ("/process/apparmorProfile", json!("no\nprofile"), "process.apparmorProfile"),
        ("/mounts/0/destination", json!("/a/../.."), "a destination is \"/\""),
        ("/mounts/0/destination", json!("/"), "a destination is \"/\""),
        ("/mounts/1/options", json!(["sizee=1"]), "unknown mount option \"sizee=1\""),
        ("/mounts/0", json!({"destination": "/x", "type": "bind", "source": "y"}), "bind source \"y\" is not absolute"),
        ("/linux/namespaces/0", json!({"type": "network"}), "network is listed twice"),
        ("/linux/namespaces/0/path", json!("/none"), "open pid namespace \"/none\""),
        ("/linux/namespaces/0/path", json!("/proc/self/ns/net"), "path for pid is not such a namespace"),
        ("/linux/namespaces/4", json!({"type": "user"}), "linux.uidMappings: is missing"),
        ("/linux/sysctl", json!({"kernel.panic": "1"}), "kernel.panic does not belong to a namespace"),
        ("/linux/cgroupsPath", json!("../up"), "linux.cgroupsPath"),
        ("/linux/maskedPaths", json!(["proc"]), "linux.maskedPaths: \"proc\" is not absolute"),
        ("/linux/rootfsPropagation", json!("sharedd"), "linux.rootfsPropagation: \"sharedd\""),
        ("/linux/personality", json!({"domain": "BSD"}), "linux.personality.domain: \"BSD\""),
        ("/linux/devices", json!([{"path": "/dev/x", "type": "c", "major": -1, "minor": 0}]), "linux.devices: /dev/x"),
        ("/linux/intelRdt", json!({"closID": "x"}), "linux.intelRdt: no resctrl"),
        ("/linux/intelRdt", json!({"closID": "a/b"}), "linux.intelRdt.closID"),
        ("/hostname", json!("h".repeat(65)), "hostname"),
        ("/hooks", json!({"poststop": [{"path": "x"}]}), "hooks.poststop[0].path: \"x\" is not absolute"),
        ("/hooks", json!({"prestart": [{"path": "/x", "timeout": 0}]}), "hooks.prestart[0].timeout: 0"),
        ("/ociVersion", json!("2.0.0"), "ociVersion"),
    ]
}

fn put(target: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    match target.pointer_mut(parent).expect("a parent") {
        Value::Array(array) => array[key.parse::<usize>().expect("an index")] = value,
        Value::Object(object) => {
            object.insert(key.to_owned(), value);
        }
        other => panic!("{other} has no {key}"),
    }
}

fn bad_specs(node: &Node) {
    let mut good = bundle::spec(&["true"]);
    good.linux.as_mut().expect("linux").cgroups_path = Some("/pinion-test-container-none/x".to_owned());
    let image = node.image();
    Plan::new(&good, node.inputs_of(&image)).expect("the spec before the change is good");
    let good = serde_json::to_value(&good).expect("a value");
    for (pointer, value, expected) in table() {
        let mut bad = good.clone();
        put(&mut bad, pointer, value.clone());
        let spec: oci::Spec = serde_json::from_value(bad).expect("a spec");
        match Plan::new(&spec, node.inputs_of(&image)) {
            Ok(_) => panic!("{pointer} = {value} was accepted"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
                assert!(error.message().contains(expected), "{pointer}: {error}");
            }
        }
    }
}

fn no_cgroup_left_behind(node: &Node) {
    let mut spec = bundle::spec(&["true"]);
    let source = json!({"destination": "/x", "type": "bind", "source": "/none", "options": ["rbind"]});
    spec.mounts.push(serde_json::from_value(source).expect("a mount"));
    let path = node.parent.join("failed").expect("path");
    spec.linux.as_mut().expect("linux").cgroups_path = Some(path.as_str().to_owned());
    let error = node.run(spec, node.inputs()).expect_err("no such source");
    assert_eq!(error.message(), "mount on \"/x\": bind source \"/none\": No such file or directory");
    assert!(!node.trees.contains(&path));
}

/// A lock that another thread holds would never be released in the child, so callers with threads are refused.
fn threads_are_refused(node: &Node) {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || stopped.recv());
    let error = node.run(bundle::spec(&["true"]), node.inputs()).expect_err("two threads");
    drop(stop);
    let _ = thread.join();
    assert!(error.message().contains("clone the container's init"), "{error}");
}
