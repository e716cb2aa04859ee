use std::ffi::OsString;

use cgroup::{Group, GroupPath, Hierarchies};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    io::Errno,
    process::{Signal, pidfd_send_signal},
};

use crate::{
    arguments::Global,
    command::state::word,
    exit_code::ExitCode,
    failure::{Failure, warn, warn_each},
    flags::{Flags, Order, switch},
    hook_output,
    state::{self, Directory, Record},
};

/// How long a killed process may take to end: it may be in the middle of a disk's or a network's work.
const END_SECONDS: i64 = 10;

/// `delete ID`: takes away what is left of a container that stopped, or was never started; with `--force` of any.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &[switch(&["force", "f"])], Order::Mixed)?;
    let (id, force) = (flags.id()?, flags.is_on("force")?);
    let Some(directory) = Directory::find(&global.root, id)? else {
        return if force { Ok(ExitCode::SUCCESS) } else { Err(Failure::absent(id)) };
    };
    if !directory.has_record() {
        // What a killed call left is no container, but goes.
        directory.remove_leftover()?;
        return if force { Ok(ExitCode::SUCCESS) } else { Err(Failure::absent(id)) };
    }
    let record = match directory.load() {
        Err(failure) if force => {
            warn(global, &format!("{failure}; removed what can be known of the container without it"));
            return directory.remove_broken().map(|()| ExitCode::SUCCESS);
        }
        result => result?,
    };
    let group = remaining(&record)?;
    if let Some(init) = record.init()? {
        let status = record.status(&directory)?;
        if !force && status != oci::Status::Created {
            let status = word(status);
            return Err(Failure::new(format!("cannot delete container {id} that is not stopped: {status}")));
        }
        end(&record, &init, group.as_ref())?;
    }
    clean(global, directory, record, group)?;
    Ok(ExitCode::SUCCESS)
}

/// Its group, if anything of it is there.
fn remaining(record: &Record) -> Result<Option<Group>, Failure> {
    match record.systemd_unit {
        None if record.cgroup.is_empty() => Ok(None),
        Some(_) => record.group().map(Some),
        None => Ok(state::remains(&Hierarchies::open()?, &GroupPath::parse(&record.cgroup)?)?),
    }
}

/// Stops a container, whatever it does, and removes it.
pub(crate) fn destroy(global: &Global, directory: Directory, record: Record) -> Result<(), Failure> {
    let group = remaining(&record)?;
    if let Some(init) = record.init()? {
        end(&record, &init, group.as_ref())?;
    }
    clean(global, directory, record, group)
}

/// Kills the container, frozen or not, and waits for its init to be gone.
fn end(record: &Record, init: &OwnedFd, group: Option<&Group>) -> Result<(), Failure> {
    match pidfd_send_signal(init, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(errno) => {
            return Err(Failure::io(format!("kill process {} of container {}", record.pid, record.id), errno));
        }
    }
    if let Some(group) = group.filter(|group| group.is_real()) {
        group.kill()?;
    }
    let bound = Timespec { tv_sec: END_SECONDS, tv_nsec: 0 };
    match poll(&mut [PollFd::new(init, PollFlags::IN)], Some(&bound)) {
        Ok(0) => Err(Failure::new(format!(
            "container {}: process {} is still there {END_SECONDS} s after it was killed",
            record.id, record.pid
        ))),
        Ok(_) => Ok(()),
        Err(errno) => Err(Failure::io("wait for the container's end", errno)),
    }
}

/// Everything that a container whose init has ended still has: processes that outlived it, its group, its directory.
/// What is left when this fails is there for another `delete`.
pub(crate) fn clean(
    global: &Global,
    directory: Directory,
    record: Record,
    group: Option<Group>,
) -> Result<(), Failure> {
    if let Some(group) = group {
        // In a PID namespace of its own nobody outlives its init.
        if !record.own_pids && group.is_real() {
            group.kill()?;
        }
        group.remove()?;
    }
    if record.hosts_mounts {
        container::detach_root(std::path::Path::new(&record.rootfs))
            .map_err(|error| Failure::io(format!("unmount the root {:?}", record.rootfs), error))?;
    }
    if let Some(rdt) = &record.intel_rdt {
        container::intel_rdt::remove(rdt, &record.id)?;
    }
    directory.remove()?;
    // They were checked when the container was made.
    match hook_output::hooks(&record) {
        Ok(hooks) => {
            warn_each(global, hooks.map_or(Vec::new(), |hooks| hooks.poststop(&record.state(oci::Status::Stopped))))
        }
        Err(failure) => warn(global, &format!("poststop hooks: {failure}")),
    }
    Ok(())
}
