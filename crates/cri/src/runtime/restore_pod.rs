use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared},
};

pub(super) async fn answer(_: Shared, _: v1::RestorePodRequest) -> Outcome<v1::RestorePodResponse> {
    Err(Failure::unimplemented("RestorePod", "there is no other way yet"))
}
