use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared, Streamed},
};

pub(super) async fn answer(
    _: Shared,
    _: v1::StreamContainersRequest,
) -> Outcome<Streamed<v1::StreamContainersResponse>> {
    Err(Failure::unimplemented("StreamContainers", "use ListContainers"))
}
