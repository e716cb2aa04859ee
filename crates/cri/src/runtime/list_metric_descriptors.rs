use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared},
};

pub(super) async fn answer(
    _: Shared,
    _: v1::ListMetricDescriptorsRequest,
) -> Outcome<v1::ListMetricDescriptorsResponse> {
    Err(Failure::unimplemented("ListMetricDescriptors", "use ListContainerStats"))
}
