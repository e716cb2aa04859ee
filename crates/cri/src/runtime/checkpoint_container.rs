use std::{path::Path, time::Duration};

use cri_proto::v1;

use crate::{
    Failure,
    handler::{Outcome, Shared},
};

/// Writes a checkpoint of a running container to an archive; the container keeps running.
pub(super) async fn handle(
    state: Shared,
    request: v1::CheckpointContainerRequest,
) -> Outcome<v1::CheckpointContainerResponse> {
    let seconds = u64::try_from(request.timeout)
        .map_err(|_| Failure::invalid("timeout", format_args!("{} is negative", request.timeout)))?;
    let location = Path::new(&request.location);
    state.engine.checkpoint_container(&request.container_id, location, Duration::from_secs(seconds)).await?;
    Ok(v1::CheckpointContainerResponse {})
}
