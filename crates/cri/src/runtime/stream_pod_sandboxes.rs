use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared, Streamed},
};

pub(super) async fn answer(
    _: Shared,
    _: v1::StreamPodSandboxesRequest,
) -> Outcome<Streamed<v1::StreamPodSandboxesResponse>> {
    Err(Failure::unimplemented("StreamPodSandboxes", "use ListPodSandbox"))
}
