use std::{collections::BTreeMap, path::PathBuf};

use container::{Inputs, Invocation, Plan, Rootfs, Stdio};

/// Parses a `config.json`. The result must be an error or a plan, never a panic; a parsed spec must survive serialising
/// and parsing unchanged.
pub fn spec(data: &[u8]) {
    let Ok(spec) = oci::from_json::<oci::Spec>(data) else { return };
    let text = serde_json::to_vec(&spec).expect("a parsed spec can be serialised");
    let again: oci::Spec = serde_json::from_slice(&text).expect("a serialised spec can be parsed");
    assert_eq!(again, spec);
    let inputs = Inputs {
        interpreter: None,
        rootfs: Rootfs::Path(PathBuf::from("/nowhere")),
        mounts: BTreeMap::new(),
        namespaces: BTreeMap::new(),
        stdio: Stdio::default(),
        seccomp: None,
        invocation: Invocation::default(),
    };
    if let Err(error) = Plan::new(&spec, inputs) {
        assert!(!error.to_string().is_empty(), "an error has a message");
    }
}
