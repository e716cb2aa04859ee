//! The process specification of a command.

use std::{path::PathBuf, sync::Arc, time::Duration};

use super::request::ExecRequest;
use crate::{
    Error, GroupsPolicy, UserChoice,
    container::{identity::Accounts, spec},
    error::failed,
    parts::Parts,
    process,
    store::Container,
};

/// How long reading the container's own `/etc/passwd` and `/etc/group` may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the container's process specification with the request's changes applied.
pub(super) async fn resolve(
    parts: &Arc<Parts>,
    container: &Arc<Container>,
    request: &ExecRequest,
) -> Result<oci::Process, Error> {
    let mut process = container.process(&parts.registry.records)?.clone();
    process.args.clone_from(&request.command);
    process.terminal = request.tty;
    process.oom_score_adj = container.record().oom_score_adj.or(process.oom_score_adj);
    process.console_size = request.size;
    if request.tty && !process.env.iter().any(|entry| entry.starts_with("TERM=")) {
        process.env.push("TERM=xterm".into());
    }
    for (name, value) in &request.env {
        spec::set(&mut process.env, format!("{name}={value}"));
    }
    if let Some(dir) = &request.working_dir {
        process.cwd = spec::absolute(dir);
    }
    if request.user != UserChoice::Image {
        let choice = request.user.clone();
        let record = container.record();
        // The container may have mounted its `/etc` from a file server that never answers.
        let owner = vec![PathBuf::from(format!("container {}", container.id()))];
        let look_up = move |_: &_| user_inside(&choice, record.pid, record.start_time);
        process.user = parts.node.host_files.visit(owner, LOOKUP_TIMEOUT, look_up).await?;
    }
    Ok(process)
}

/// Looks up a user in the container's current root.
fn user_inside(choice: &UserChoice, pid: u32, start_time: u64) -> Result<oci::User, Error> {
    let root = format!("/proc/{pid}/root");
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let opened =
        rustix::fs::open(&root, flags, rustix::fs::Mode::empty()).map_err(failed(format_args!("open {root}")))?;
    if process::find(pid, start_time).is_none() {
        return Err(Error::state("the container is not running"));
    }
    Accounts::read(&opened)?.resolve(choice, "", &[], GroupsPolicy::Merge)
}
