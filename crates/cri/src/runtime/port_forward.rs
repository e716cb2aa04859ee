use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared},
};

pub(super) async fn answer(_: Shared, _: v1::PortForwardRequest) -> Outcome<v1::PortForwardResponse> {
    Err(Failure::unimplemented("PortForward", "reach the pod by its address"))
}
