use std::collections::HashMap;

use cri_proto::v1;

use crate::{
    handler::{Outcome, Shared},
    status::{container_info, container_status},
};

/// Returns the status of a container; `verbose` adds all details.
pub(super) async fn handle(state: Shared, request: v1::ContainerStatusRequest) -> Outcome<v1::ContainerStatusResponse> {
    let container = state.engine.container(&request.container_id)?;
    // The image may have been removed or its record may be damaged; the container's status does not depend on it.
    let image = state.engine.images().find(&container.image_id).ok().flatten();
    let info = match request.verbose {
        true => container_info(&container, state.engine.inspect_container(&container.id)?),
        false => HashMap::new(),
    };
    Ok(v1::ContainerStatusResponse { status: Some(container_status(&container, image.as_ref())), info })
}
