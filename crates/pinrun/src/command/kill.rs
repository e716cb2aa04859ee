use std::ffi::OsString;

use crate::{
    arguments::Global,
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flags, Order, switch, text},
    signals,
    state::Directory,
};

/// `kill ID [SIGNAL]`: sends a signal to the container's init; with `--all` to every process of its cgroup.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &[switch(&["all", "a"])], Order::Mixed)?;
    let (id, signal) = match flags.words.as_slice() {
        [id] => (text(id)?, libc::SIGTERM),
        [id, signal] => (text(id)?, signals::parse(text(signal)?)?),
        _ => return Err(Failure::usage("kill requires a container id and optionally a signal")),
    };
    let directory = Directory::open(&global.root, id)?;
    let record = directory.load()?;
    let init = record.init()?;
    let all = flags.is_on("all")?;
    if all || signal == libc::SIGKILL && !record.own_pids {
        match record.group() {
            // Without a cgroup only the init can be killed.
            Ok(group) if !all && !group.has_directory() => {}
            Ok(group) if signal == libc::SIGKILL => return done(group.kill()),
            Ok(group) => return done(group.signal(signal)),
            // No process exists anymore.
            Err(_) if init.is_none() => return Ok(ExitCode::SUCCESS),
            Err(failure) => return Err(failure),
        }
    }
    match syscall::pidfd_signal::pidfd_signal(&record.running_init()?, signal) {
        Ok(()) => {}
        Err(rustix::io::Errno::SRCH) => return Err(Failure::new("os: process already finished")),
        Err(errno) => return Err(Failure::io(format!("send signal {signal} to container {id}"), errno)),
    }
    if signal == libc::SIGKILL {
        // A frozen process of a v1 hierarchy exits only after it is thawed. Without a cgroup it is not frozen.
        let _ = record.group().map(|group| group.thaw());
    }
    Ok(ExitCode::SUCCESS)
}

fn done(result: Result<(), cgroup::Error>) -> Result<ExitCode, Failure> {
    Ok(result.map(|()| ExitCode::SUCCESS)?)
}
