use serde::{Deserialize, Serialize};

/// Hooks of a container that are still to be run, and what they are told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldHooks {
    /// Those of the runtime's namespaces.
    pub hooks: oci::Hooks,
    /// Status and pid are filled in.
    pub state: oci::State,
}

impl HeldHooks {
    /// Of a container with this spec, if there are any.
    #[must_use]
    pub fn of(spec: &oci::Spec, id: &str, bundle: &str) -> Option<Box<Self>> {
        let hooks = spec.hooks.clone()?;
        let hooks = oci::Hooks { create_container: Vec::new(), start_container: Vec::new(), ..hooks };
        let state = oci::State {
            oci_version: spec.oci_version.clone(),
            id: id.to_owned(),
            bundle: bundle.to_owned(),
            annotations: spec.annotations.clone(),
            ..oci::State::default()
        };
        (hooks != oci::Hooks::default()).then(|| Box::new(Self { hooks, state }))
    }
}
