use std::ffi::OsString;

use crate::{
    arguments::Global,
    command::delete,
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flags, Order},
    hook_output,
    log::debug,
    state::Directory,
};

/// `start ID`: starts the program of a created container.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &[], Order::Mixed)?;
    let id = flags.id()?;
    let directory = Directory::open(&global.root, id)?;
    // Of two concurrent calls one starts the container, and the other fails.
    directory.lock()?;
    let record = directory.load()?;
    let waiting = if record.init()?.is_some() { directory.connect()? } else { None };
    let Some(socket) = waiting else {
        return Err(Failure::new(match record.status(&directory)? {
            oci::Status::Stopped => format!("cannot start a container that has stopped: {id}"),
            oci::Status::Running => format!("cannot start an already running container: {id}"),
            status => format!("cannot start a container in the {} state: {id}", super::state::status_name(status)),
        }));
    };
    // Parse the hooks before the program is executed, so that an error prevents the start.
    let hooks = hook_output::hooks(&record)?;
    let started = container::start_created(socket, || match record.is_frozen() {
        true => Err(format!("cannot start a container in the paused state: {id}; resume it first")),
        false => Ok(()),
    });
    started?;
    debug(global, || format!("container {id}: process {} executed its program", record.pid));
    directory.remove_start_socket();
    match hooks.map_or(Ok(()), |hooks| hooks.poststart(&record.state(oci::Status::Running))) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // runtime.md, "Lifecycle", step 9: stop the container and continue at step 12, which destroys it.
        Err(error) => Err(delete::destroy(global, directory, record).err().map_or(error.clone().into(), |also| {
            Failure::new(format!("{error}; removing the container failed, too: {also}"))
        })),
    }
}
