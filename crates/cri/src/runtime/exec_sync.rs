use std::time::Duration;

use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared},
};

/// Runs a command in a container and answers with its output; a client that hangs up ends it.
pub(super) async fn answer(state: Shared, request: v1::ExecSyncRequest) -> Outcome<v1::ExecSyncResponse> {
    if request.cmd.is_empty() {
        return Err(Failure::invalid("cmd", "is empty"));
    }
    let timeout =
        u64::try_from(request.timeout).map_err(|_| Failure::invalid("timeout", "is negative; 0 is no limit"))?;
    let output = state.engine.exec_sync(&request.container_id, request.cmd, Duration::from_secs(timeout)).await?;
    Ok(v1::ExecSyncResponse { stdout: output.stdout, stderr: output.stderr, exit_code: output.exit_code })
}
