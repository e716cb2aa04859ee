use cri_proto::pinion as proto;

use crate::{
    Failure,
    handler::{Outcome, Shared},
};

/// Replaces the running monitor by another program.
pub(super) async fn handle(
    state: Shared,
    request: proto::UpgradeMonitorRequest,
) -> Outcome<proto::UpgradeMonitorResponse> {
    let program = match request.program.as_str() {
        "" => state.daemon.monitor().map_err(Failure::precondition)?,
        path if path.starts_with('/') => path.into(),
        path => return Err(Failure::invalid("program", format_args!("{path:?} is not an absolute path"))),
    };
    let monitor = state.engine.upgrade_monitor(&program).await?;
    Ok(proto::UpgradeMonitorResponse { upgraded: monitor.upgraded, version: monitor.version, pid: monitor.pid })
}
