//! The JSON of `config.json`: `null` and duplicate fields, as programs in Go and scripts with jq write them.

use std::fs;

use oci_tests::{Case, each_runtime};
use serde_json::{Value, json};

each_runtime!(null_is_absent, null_limits_in_update, the_last_of_two_fields_counts);

/// Optional properties of every type: strings, numbers, booleans, objects, lists and maps.
const OPTIONAL: [&str; 30] = [
    "/process/terminal",
    "/process/consoleSize",
    "/process/user/umask",
    "/process/user/additionalGids",
    "/process/capabilities/ambient",
    "/process/rlimits",
    "/process/noNewPrivileges",
    "/process/apparmorProfile",
    "/process/selinuxLabel",
    "/process/oomScoreAdj",
    "/root/readonly",
    "/hooks",
    "/annotations",
    "/linux/uidMappings",
    "/linux/gidMappings",
    "/linux/sysctl",
    "/linux/devices",
    "/linux/seccomp",
    "/linux/maskedPaths",
    "/linux/readonlyPaths",
    "/linux/mountLabel",
    "/linux/rootfsPropagation",
    "/linux/resources/devices",
    "/linux/resources/memory/limit",
    "/linux/resources/cpu",
    "/linux/resources/pids",
    "/linux/resources/blockIO",
    "/linux/resources/hugepageLimits",
    "/linux/resources/network",
    "/linux/resources/unified",
];

fn set(spec: &mut Value, pointer: &str, value: Value) {
    let place = pointer.split('/').skip(1).fold(spec, |place, name| &mut place[name]);
    *place = value;
}

fn null_is_absent(case: &Case) {
    for pointer in OPTIONAL {
        case.output("true", |bundle| set(&mut bundle.spec, pointer, Value::Null));
    }
    let all = case.output("id -u; grep NoNewPrivs /proc/self/status", |bundle| {
        OPTIONAL.iter().for_each(|pointer| set(&mut bundle.spec, pointer, Value::Null));
        bundle.spec["process"]["user"] = json!({ "uid": null, "gid": null });
    });
    assert_eq!(all, "0\nNoNewPrivs:\t0\n");
}

fn null_limits_in_update(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    container.create_and_start();
    let text = r#"{"memory":{"limit":41943040,"swap":null},"cpu":{"cpus":null},"hugepageLimits":null}"#;
    container.call("update", &["--resources", &case.file("resources.json", text)]).ok();
    assert_eq!(container.cgroup().read("memory.limit_in_bytes", "memory.max"), "41943040");
    container.remove();
}

fn the_last_of_two_fields_counts(case: &Case) {
    let container = case.container(case.script("pwd; hostname"));
    let first =
        [("{", r#""hostname":"first""#), (r#""process":{"#, r#""cwd":"/nowhere","terminal":true,"terminal":false"#)];
    let mut text = container.bundle.spec.to_string();
    for (object, fields) in first {
        text = text.replacen(object, &format!("{object}{fields},"), 1);
    }
    fs::write(container.bundle.directory.join("config.json"), &text).expect("write a file");
    assert_eq!(container.run().ok(), "/\ncase\n");
}
