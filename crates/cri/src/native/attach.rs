use cri_proto::pinion as proto;
use pod::{ExecRequest, UserChoice};
use tonic::Streaming;

use super::{Outgoing, session};
use crate::handler::{Outcome, Shared};

/// Attaches to a container's streams. The container keeps running when the client disconnects.
pub(super) async fn handle(
    state: Shared,
    mut input: Streaming<proto::SessionInput>,
) -> Outcome<Outgoing<proto::SessionOutput>> {
    let start = session::first(&mut input).await?;
    let container = state.engine.container(&start.container)?;
    let request = ExecRequest {
        env: Vec::new(),
        working_dir: None,
        user: UserChoice::Image,
        command: Vec::new(),
        tty: container.config.tty,
        stdin: start.stdin && container.config.stdin,
        stdout: true,
        stderr: !container.config.tty,
        size: start.size.map(session::size),
    };
    let client = state.engine.register_client(&container.id);
    let session = state.engine.attach(&container.id, request).await?;
    Ok(session::run(session, input, Some(client)))
}
