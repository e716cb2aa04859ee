//! Modules as containers of `pinrun`.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use system_tests::{Node, Options, Outcome};
use wasm_tests::{EXIT, HELLO, binary, program, read_file};

/// Runs a module with pinrun in a bundle of its own.
fn run(node: &Node, name: &str, module: &str, annotations: &Value, wasm: &str) -> Outcome {
    let bundle = node.dir.path().join(name);
    fs::create_dir_all(bundle.join("rootfs")).expect("a bundle");
    fs::write(bundle.join("rootfs/app.wasm"), binary(module)).expect("the module");
    let pinrun = PathBuf::from(std::env::var_os("PINION_BIN").expect("PINION_BIN")).join("pinrun");
    let (pinrun, bundle) = (pinrun.to_str().expect("UTF-8"), bundle.to_str().expect("UTF-8"));
    node.run(pinrun, &["spec", "--bundle", bundle]).ok();
    let config = format!("{bundle}/config.json");
    let mut spec: Value = serde_json::from_slice(&fs::read(&config).expect("read")).expect("JSON");
    spec["process"]["args"] = json!(["/app.wasm"]);
    spec["process"]["terminal"] = json!(false);
    spec["linux"]["cgroupsPath"] = json!(node.cgroup_parent());
    spec["annotations"] = annotations.clone();
    fs::write(&config, spec.to_string()).expect("write");
    let variable = format!("PINION_WASM={wasm}");
    node.run("env", &[&variable, pinrun, "--root", "/run/pinrun-test", "run", "--bundle", bundle, name])
}

#[test]
fn the_annotations_of_crun_run_a_module() {
    let node = Node::new(Options::default());
    let wasm = program();
    let wasm = wasm.to_str().expect("UTF-8");
    let handler = json!({"run.oci.handler": "wasm"});
    assert_eq!(run(&node, "hello", HELLO, &handler, wasm).ok(), "hello from a module");
    assert_eq!(run(&node, "exit", EXIT, &json!({"module.wasm.image/variant": "compat"}), wasm).code, Some(42));
    assert_eq!(run(&node, "smart", EXIT, &json!({"module.wasm.image/variant": "compat-smart"}), wasm).code, Some(42));
    assert_eq!(run(&node, "process", &read_file("proc/self/maps"), &handler, wasm).code, Some(44), "/proc is hidden");
    let missing = run(&node, "missing", HELLO, &handler, "/nonexistent/pinion-wasm").error();
    assert!(missing.contains("/nonexistent/pinion-wasm"), "{missing}");
    run(&node, "program", HELLO, &json!({}), wasm).error();
    node.end_without_daemon();
}
