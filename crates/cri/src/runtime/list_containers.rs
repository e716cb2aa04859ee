use cri_proto::v1;

use crate::{
    answer::{Outcome, Shared},
    status::{ContainerFilter, listed_container},
};

/// Containers that the filter lets through.
pub(super) async fn answer(state: Shared, request: v1::ListContainersRequest) -> Outcome<v1::ListContainersResponse> {
    let filter = ContainerFilter::from(request.filter);
    let containers = state.engine.containers().iter().filter(|c| filter.fits(c)).map(listed_container).collect();
    Ok(v1::ListContainersResponse { containers })
}
