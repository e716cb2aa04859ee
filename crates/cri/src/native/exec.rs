use cri_proto::pinion as proto;
use pod::{ExecRequest, UserChoice};
use tonic::Streaming;

use super::{Outgoing, session};
use crate::{
    Failure,
    handler::{Outcome, Shared},
};

/// Executes a command in a container; it is killed when its client disconnects.
pub(super) async fn handle(
    state: Shared,
    mut input: Streaming<proto::SessionInput>,
) -> Outcome<Outgoing<proto::SessionOutput>> {
    let start = session::first(&mut input).await?;
    if start.command.is_empty() {
        return Err(Failure::invalid("start.command", "must not be empty"));
    }
    let request = ExecRequest {
        env: start.env.iter().map(|pair| variable(pair)).collect::<Result<_, _>>()?,
        working_dir: (!start.working_dir.is_empty()).then(|| start.working_dir.clone()),
        user: user(&start.user)?,
        command: start.command,
        tty: start.tty,
        stdin: start.stdin,
        stdout: true,
        stderr: !start.tty,
        size: start.size.map(session::size),
    };
    let session = state.engine.exec(&start.container, request).await?;
    Ok(session::run(session, input, None))
}

fn variable(pair: &str) -> Outcome<(String, String)> {
    match pair.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(Failure::invalid("start.env", format_args!("{pair:?} is not NAME=value"))),
    }
}

/// Parses `1000`, `1000:1000`, `www` or `www:www`.
fn user(text: &str) -> Outcome<UserChoice> {
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    match (user.parse::<u32>(), group.map(str::parse::<u32>).transpose()) {
        _ if text.is_empty() => Ok(UserChoice::Image),
        _ if user.is_empty() => Err(Failure::invalid("start.user", format_args!("{text:?} contains no user"))),
        (Ok(uid), Ok(gid)) => Ok(UserChoice::Uid { uid: uid.into(), gid: gid.map(i64::from) }),
        _ => Ok(UserChoice::Name(text.to_owned())),
    }
}
