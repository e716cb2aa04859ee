//! Hooks of every kind, their order, and the container state that they get.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::{Value, json};

use crate::bundle::{Bundle, ID};

pub(crate) const CASES: &[super::Case] = testbed::cases!(hooks_run_in_order, a_failed_hook_removes_the_container);

/// A hook that appends its argument and the state from its standard input to a file.
const SCRIPT: &str = "#!/bin/sh\necho \"$1 $(cat)\" >> \"$2\"\n";

fn with_hooks(kinds: &[&str]) -> Bundle {
    let mut bundle = Bundle::new(&["true"]);
    let (script, record) = (bundle.path("hook"), bundle.path("record"));
    fs::write(&script, SCRIPT).expect("write the script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("chmod the script");
    for kind in kinds {
        bundle.spec["hooks"][*kind] = json!([{"path": script, "args": ["hook", kind, record]}]);
    }
    bundle.write();
    bundle
}

fn record(bundle: &Bundle) -> Vec<(String, Value)> {
    let text = fs::read_to_string(bundle.path("record")).unwrap_or_default();
    let entry = |line: &str| {
        let (kind, state) = line.split_once(' ').expect("split the line");
        (kind.to_owned(), serde_json::from_str(state).expect("parse the state"))
    };
    text.lines().map(entry).collect()
}

fn hooks_run_in_order() {
    let bundle = with_hooks(&["prestart", "createRuntime", "createContainer", "poststart", "poststop"]);
    let kinds = || record(&bundle).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>();
    bundle.pinrun(&["create", ID]).ok();
    assert_eq!(kinds(), ["prestart", "createRuntime", "createContainer"]);
    let pid = bundle.pid();
    bundle.pinrun(&["start", ID]).ok();
    assert_eq!(kinds()[3..], ["poststart"]);
    bundle.wait_until("stopped");
    bundle.pinrun(&["delete", ID]).ok();
    assert_eq!(kinds()[4..], ["poststop"]);
    for (kind, state) in &record(&bundle)[..2] {
        assert_eq!((&state["id"], state["pid"].as_i64()), (&json!(ID), Some(pid)), "{kind}");
        assert_eq!(state["annotations"], json!({"of": "the test"}), "{kind}");
    }
    assert_eq!(record(&bundle)[4].1["status"], "stopped");
    bundle.assert_removed();
}

fn a_failed_hook_removes_the_container() {
    let mut bundle = with_hooks(&["poststop"]);
    bundle.spec["hooks"]["createRuntime"] = json!([{"path": "/bin/false"}]);
    bundle.write();
    bundle.pinrun(&["create", ID]).failed("createRuntime");
    bundle.assert_removed();
    assert_eq!(record(&bundle).len(), 1, "poststop ran");
    // A failed poststart hook stops and deletes the container.
    let mut bundle = with_hooks(&[]);
    bundle.spec["hooks"]["poststart"] = json!([{"path": "/bin/false"}]);
    bundle.write();
    bundle.pinrun(&["run", ID]).failed("poststart");
    bundle.assert_removed();
    bundle.pinrun(&["create", ID]).ok();
    bundle.pinrun(&["start", ID]).failed("poststart");
    bundle.assert_removed();
}
