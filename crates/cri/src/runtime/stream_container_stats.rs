use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared, Streamed},
};

pub(super) async fn answer(
    _: Shared,
    _: v1::StreamContainerStatsRequest,
) -> Outcome<Streamed<v1::StreamContainerStatsResponse>> {
    Err(Failure::unimplemented("StreamContainerStats", "use ListContainerStats"))
}
