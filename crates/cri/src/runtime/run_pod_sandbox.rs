use cri_proto::{NETWORK_METADATA, v1};
use pod::PodNetworks;
use tonic::metadata::MetadataMap;

use crate::{
    Failure, config,
    handler::{Outcome, Shared},
};

/// Returns the named networks that the client requests. They are in the metadata of the request, because the authors of
/// pods control all of its message that the kubelet passes on.
pub(super) fn networks(metadata: &MetadataMap) -> Outcome<PodNetworks> {
    let Some(value) = metadata.get_bin(NETWORK_METADATA) else { return Ok(PodNetworks::default()) };
    let bytes = value.to_bytes().map_err(|_| Failure::invalid(NETWORK_METADATA, "is not in base64"))?;
    PodNetworks::parse(&bytes).map_err(|reason| Failure::invalid(NETWORK_METADATA, reason))
}

/// Creates a pod and returns when it is ready.
pub(super) async fn handle(
    state: Shared,
    request: v1::RunPodSandboxRequest,
    networks: Outcome<PodNetworks>,
) -> Outcome<v1::RunPodSandboxResponse> {
    let message = request.config.ok_or_else(|| Failure::invalid("config", "is missing"))?;
    let mut config = config::sandbox(message, request.runtime_handler)?;
    config.named = networks?;
    if config.named.networks.is_some() && config.network == pod::SharedMode::Node {
        return Err(Failure::invalid(NETWORK_METADATA, "a pod in the node's network cannot join other networks"));
    }
    let pod_sandbox_id = state.engine.run_sandbox(config).await?.into();
    Ok(v1::RunPodSandboxResponse { pod_sandbox_id })
}
