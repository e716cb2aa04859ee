use std::{path::Path, time::Duration};

use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared},
};

/// Writes the state of a running container into an archive; the container runs on.
pub(super) async fn answer(
    state: Shared,
    request: v1::CheckpointContainerRequest,
) -> Outcome<v1::CheckpointContainerResponse> {
    let seconds = u64::try_from(request.timeout)
        .map_err(|_| Failure::invalid("timeout", format_args!("{} is negative", request.timeout)))?;
    let location = Path::new(&request.location);
    state.engine.checkpoint_container(&request.container_id, location, Duration::from_secs(seconds)).await?;
    Ok(v1::CheckpointContainerResponse {})
}
