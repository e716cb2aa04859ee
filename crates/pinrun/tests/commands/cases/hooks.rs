//! Hooks of every kind, in their order, with the container's state.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::{Value, json};

use crate::bundle::{Bundle, ID};

pub(crate) const CASES: &[super::Case] = crate::cases!(in_their_order, one_that_fails);

/// Writes its argument and what it was told.
const SCRIPT: &str = "#!/bin/sh\necho \"$1 $(cat)\" >> \"$2\"\n";

fn with_hooks(kinds: &[&str]) -> Bundle {
    let mut bundle = Bundle::new(&["true"]);
    let (script, record) = (bundle.path("hook"), bundle.path("record"));
    fs::write(&script, SCRIPT).expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("mode");
    for kind in kinds {
        bundle.spec["hooks"][*kind] = json!([{"path": script, "args": ["hook", kind, record]}]);
    }
    bundle.write();
    bundle
}

fn record(bundle: &Bundle) -> Vec<(String, Value)> {
    let text = fs::read_to_string(bundle.path("record")).unwrap_or_default();
    let entry = |line: &str| {
        let (kind, state) = line.split_once(' ').expect("a kind and a state");
        (kind.to_owned(), serde_json::from_str(state).expect("JSON"))
    };
    text.lines().map(entry).collect()
}

fn in_their_order() {
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
    bundle.is_gone();
}

fn one_that_fails() {
    let mut bundle = with_hooks(&["poststop"]);
    bundle.spec["hooks"]["createRuntime"] = json!([{"path": "/bin/false"}]);
    bundle.write();
    bundle.pinrun(&["create", ID]).failed("createRuntime");
    bundle.is_gone();
    assert_eq!(record(&bundle).len(), 1, "poststop ran");
    // After start it ends the container, which is then no more.
    let mut bundle = with_hooks(&[]);
    bundle.spec["hooks"]["poststart"] = json!([{"path": "/bin/false"}]);
    bundle.write();
    bundle.pinrun(&["run", ID]).failed("poststart");
    bundle.is_gone();
    bundle.pinrun(&["create", ID]).ok();
    bundle.pinrun(&["start", ID]).failed("poststart");
    bundle.is_gone();
}
