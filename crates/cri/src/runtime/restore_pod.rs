use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared},
};

pub(super) async fn answer(_: Shared, _: v1::RestorePodRequest) -> Outcome<v1::RestorePodResponse> {
    Err(Failure::unimplemented(
        "RestorePod",
        "checkpoints are for a look at them; a container cannot be made from one yet",
    ))
}
