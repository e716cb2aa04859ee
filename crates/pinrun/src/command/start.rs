use std::ffi::OsString;

use container::hooks::Hooks;

use crate::{
    arguments::Global,
    exit_code::ExitCode,
    failure::{Failure, warn_each},
    flags::{Flags, Order},
    state::Folder,
};

/// `start ID`: the created container's program runs.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &[], Order::Mixed)?;
    let id = flags.id()?;
    let folder = Folder::open(&global.root, id)?;
    // Of two calls at once one starts it, and the other is told.
    folder.lock()?;
    let record = folder.load()?;
    let waiting = if record.init()?.is_some() { folder.connect()? } else { None };
    let Some(socket) = waiting else {
        return Err(Failure::new(match record.status(&folder)? {
            oci::Status::Stopped => format!("cannot start a container that has stopped: {id}"),
            oci::Status::Running => format!("cannot start an already running container: {id}"),
            status => format!("cannot start a container in the {} state: {id}", super::state::word(status)),
        }));
    };
    container::start_waiting(socket)?;
    folder.forget_start();
    if let Some(hooks) = record.hooks.as_ref().map(Hooks::parse).transpose()? {
        warn_each(global, hooks.poststart(&record.state(oci::Status::Running)));
    }
    Ok(ExitCode::SUCCESS)
}
