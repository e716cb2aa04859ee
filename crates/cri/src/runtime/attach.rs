use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared},
};

pub(super) async fn answer(_: Shared, _: v1::AttachRequest) -> Outcome<v1::AttachResponse> {
    Err(Failure::unimplemented("Attach", "use `pinion attach`"))
}
