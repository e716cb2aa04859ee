use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared},
};

pub(super) async fn answer(_: Shared, _: v1::ExecRequest) -> Outcome<v1::ExecResponse> {
    Err(Failure::unimplemented("Exec", "use `pinion exec`"))
}
