use std::{collections::BTreeMap, path::PathBuf};

use container::{Inputs, Invocation, Plan, Rootfs, Stdio};

/// A `config.json`: an error or a plan, never a panic; and what was read is what is written again.
pub fn spec(data: &[u8]) {
    let Ok(spec) = oci::from_json::<oci::Spec>(data) else { return };
    let text = serde_json::to_vec(&spec).expect("what was read can be written");
    let again: oci::Spec = serde_json::from_slice(&text).expect("what was written can be read");
    assert_eq!(again, spec);
    let inputs = Inputs {
        rootfs: Rootfs::Path(PathBuf::from("/nowhere")),
        mounts: BTreeMap::new(),
        namespaces: BTreeMap::new(),
        stdio: Stdio::default(),
        seccomp: None,
        invocation: Invocation::default(),
    };
    if let Err(error) = Plan::new(&spec, inputs) {
        assert!(!error.to_string().is_empty(), "an error says what is wrong");
    }
}
