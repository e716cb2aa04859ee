use std::ffi::OsString;

use crate::{
    arguments::Global,
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flags, Order, switch, text},
    signals,
    state::Folder,
};

/// `kill ID [SIGNAL]`: to the container's init; with `--all` to every process of its group.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &[switch(&["all", "a"])], Order::Mixed)?;
    let (id, signal) = match flags.words.as_slice() {
        [id] => (text(id)?, libc::SIGTERM),
        [id, signal] => (text(id)?, signals::parse(text(signal)?)?),
        _ => return Err(Failure::usage("kill needs a container id, and may have a signal")),
    };
    let folder = Folder::open(&global.root, id)?;
    let record = folder.load()?;
    let init = record.init()?;
    let all = flags.is_on("all")?;
    if all || signal == libc::SIGKILL && !record.own_pids {
        return match record.group() {
            Ok(group) if signal == libc::SIGKILL => group.kill(),
            Ok(group) => group.signal(signal),
            // Nothing is left to be killed.
            Err(_) if init.is_none() => Ok(()),
            Err(failure) => return Err(failure),
        }
        .map(|()| ExitCode::SUCCESS)
        .map_err(Failure::from);
    }
    match syscall::pidfd_signal::pidfd_signal(&record.running()?, signal) {
        Ok(()) => {}
        Err(rustix::io::Errno::SRCH) => return Err(Failure::new("os: process already finished")),
        Err(errno) => return Err(Failure::io(format!("send signal {signal} to container {id}"), errno)),
    }
    if signal == libc::SIGKILL {
        // A frozen process of a v1 tree ends only when it is thawed. Without a group it is not frozen.
        let _ = record.group().map(|group| group.thaw());
    }
    Ok(ExitCode::SUCCESS)
}
