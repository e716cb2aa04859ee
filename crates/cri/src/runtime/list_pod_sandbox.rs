use cri_proto::v1;

use crate::{
    answer::{Outcome, Shared},
    status::{SandboxFilter, listed_sandbox},
};

/// Pods that the filter lets through.
pub(super) async fn answer(state: Shared, request: v1::ListPodSandboxRequest) -> Outcome<v1::ListPodSandboxResponse> {
    let filter = SandboxFilter::from(request.filter);
    let items = state.engine.sandboxes().iter().filter(|s| filter.fits(s)).map(listed_sandbox).collect();
    Ok(v1::ListPodSandboxResponse { items })
}
