//! Plugins that run in this process: the types of the reference plugins, with the parameters that their programs get.

use cni_plugins::{PluginType, program};
use serde_json::{Map, Value};

use super::programs::{Invocation, Programs};

/// Returns the type whose functions replace the program of a plugin; `None` if the program is needed: for other types,
/// for options that only the program has, and for pods that the program attached.
pub(super) fn plugin_type(kind: &str, config: &Map<String, Value>, invocation: &Invocation<'_>) -> Option<PluginType> {
    PluginType::from_name(kind).filter(|kind| !invocation.is_of_program && kind.supports(config))
}

/// Reports whether a plugin needs no program.
pub(crate) fn is_built_in(kind: &str, config: &Map<String, Value>) -> bool {
    plugin_type(kind, config, &Invocation::default()).is_some()
}

/// Reports whether `DEL` of a plugin needs no program and may run after the pod's removal was reported.
pub(crate) fn is_deferrable(kind: &str, config: &Map<String, Value>) -> bool {
    plugin_type(kind, config, &Invocation::default()).is_some_and(|kind| kind.is_deferrable(config))
}

/// Returns the parameters of a call without anything that the pod requested.
pub(super) fn without_requests<'a>(
    config: &Map<String, Value>,
    invocation: &Invocation<'a>,
) -> (Map<String, Value>, Invocation<'a>) {
    let mut config = config.clone();
    for key in ["args", "runtimeConfig"] {
        config.remove(key);
    }
    let environment = invocation.environment.iter().filter(|(name, _)| *name != "CNI_ARGS").cloned().collect();
    (config, Invocation { environment, ..*invocation })
}

/// Runs a command on a blocking thread; returns whether it succeeded, and its output. Nothing that it waits for takes
/// long: the kernel's answers, at most ten seconds for locks of leases and ten for duplicate address detection.
pub(super) async fn run(
    kind: PluginType,
    command: &'static str,
    config: &Map<String, Value>,
    invocation: &Invocation<'_>,
    programs: &Programs,
) -> Result<(bool, Vec<u8>), String> {
    let input = serde_json::to_vec(config).map_err(|e| e.to_string())?;
    let environment: Vec<(&'static str, String)> = invocation
        .environment
        .iter()
        .map(|(name, value)| (*name, value.to_string_lossy().into_owned()))
        .chain([("CNI_COMMAND", command.to_owned())])
        .collect();
    let namespace = invocation.namespace.map(netns::Namespace::try_clone).transpose().map_err(|e| e.to_string())?;
    // The ledger permits one attachment of an interface of a sandbox only.
    let (nft, announcer) = (programs.nft.clone(), programs.announcer.clone());
    let context = program::Context { is_new: true, namespace, nft, announcer };
    let work = move || {
        let variable =
            |name: &'static str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
        let mut output = Vec::new();
        let code = program::run(kind, context, &variable, &input[..], &mut output);
        (code == 0, output)
    };
    offload::blocking(work).await.map_err(|bug| bug.to_string())
}
