use std::{ffi::OsString, process::ExitCode};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::OwnedFd,
    process::{Signal, pidfd_send_signal},
};

use crate::{
    arguments::Global,
    command::state::word,
    failure::Failure,
    flags::{Flags, Order, switch},
    state::{Folder, Record},
};

/// `delete ID`: takes away what is left of a container that stopped, or was never started; with `--force` of any.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &[switch(&["force", "f"])], Order::Mixed)?;
    let (id, force) = (flags.id()?, flags.is_on("force")?);
    let folder = match Folder::open(&global.root, id) {
        Err(failure) if force && failure.message.starts_with("container does not exist") => return Ok(ExitCode::SUCCESS),
        result => result?,
    };
    let record = match folder.load() {
        // Left by a call that was killed; or unreadable.
        Err(_) if force && !folder.is_being_made() => return folder.remove().map(|()| ExitCode::SUCCESS),
        result => result?,
    };
    match (record.init()?, record.status(&folder)?) {
        (Some(init), oci::Status::Created) => end(&init)?,
        (Some(init), _) if force => end(&init)?,
        (Some(_), status) => {
            let status = word(status);
            return Err(Failure::new(format!("cannot delete container {id} that is not stopped: {status}")));
        }
        (None, _) => {}
    }
    clean(global, folder, record)?;
    Ok(ExitCode::SUCCESS)
}

/// Until it is gone. SIGKILL reaches a frozen process in v2 only when it is thawed, so its whole group is killed after it.
fn end(init: &OwnedFd) -> Result<(), Failure> {
    match pidfd_send_signal(init, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(errno) => Err(Failure::io("kill the container's process", errno)),
    }
}

/// Everything that a stopped container still has: processes that outlived its init, its group, its folder.
pub(crate) fn clean(_global: &Global, folder: Folder, record: Record) -> Result<(), Failure> {
    if let Ok(group) = record.group() {
        group.kill()?;
        if let Some(init) = record.init()? {
            poll(&mut [PollFd::new(&init, PollFlags::IN)], None)
                .map_err(|errno| Failure::io("wait for the container's end", errno))?;
        }
        group.remove()?;
    }
    folder.remove()
}
