use serde::{Deserialize, Serialize};

/// Hooks of a container that have not run yet, and the state that they receive on standard input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingHooks {
    /// Hooks that run in the runtime's namespaces: prestart, createRuntime, poststart and poststop.
    pub hooks: oci::Hooks,
    /// State of the container. Status and pid are filled in when a hook runs.
    pub state: oci::State,
}

impl PendingHooks {
    /// Returns the hooks of a container with this spec. `None` if no hook runs in the runtime's namespaces.
    #[must_use]
    pub fn from_spec(spec: &oci::Spec, id: &str, bundle: &str) -> Option<Box<Self>> {
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
