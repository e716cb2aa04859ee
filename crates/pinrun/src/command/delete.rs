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
    command::state::status_name,
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flags, Order, switch},
    hook_output,
    log::{warn, warn_each},
    state::{self, Directory, Record},
};

/// How long a killed process may take to exit, in seconds: it may be in uninterruptible I/O.
const EXIT_SECONDS: i64 = 10;

/// `delete ID`: deletes a container that has stopped or was never started; with `--force` any container.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &[switch(&["force", "f"])], Order::Mixed)?;
    let (id, force) = (flags.id()?, flags.is_on("force")?);
    let Some(directory) = Directory::find(&global.root, id)? else {
        return if force { Ok(ExitCode::SUCCESS) } else { Err(Failure::absent(id)) };
    };
    if !directory.has_record() {
        // Leftovers of a killed call are not a container, but are removed.
        directory.remove_leftover()?;
        return if force { Ok(ExitCode::SUCCESS) } else { Err(Failure::absent(id)) };
    }
    let record = match directory.load() {
        Err(failure) if force => {
            warn(global, &format!("{failure}; removed the resources that are known without it"));
            return directory.remove_broken().map(|()| ExitCode::SUCCESS);
        }
        result => result?,
    };
    let group = open_group(&record)?;
    if let Some(init) = record.init()? {
        let status = record.status(&directory)?;
        if !force && status != oci::Status::Created {
            let status = status_name(status);
            return Err(Failure::new(format!("cannot delete container {id} that is not stopped: {status}")));
        }
        kill(&record, &init, group.as_ref())?;
    }
    clean(global, directory, record, group)?;
    Ok(ExitCode::SUCCESS)
}

/// Opens the container's cgroup, if any part of it exists.
fn open_group(record: &Record) -> Result<Option<Group>, Failure> {
    match record.systemd_unit {
        None if record.cgroup.is_empty() => Ok(None),
        Some(_) => record.group().map(Some),
        None => Ok(state::open_partial(&Hierarchies::open()?, &GroupPath::parse(&record.cgroup)?)?),
    }
}

/// Kills a container in any state and removes it.
pub(crate) fn destroy(global: &Global, directory: Directory, record: Record) -> Result<(), Failure> {
    let group = open_group(&record)?;
    if let Some(init) = record.init()? {
        kill(&record, &init, group.as_ref())?;
    }
    clean(global, directory, record, group)
}

/// Kills the container, frozen or not, and waits for its init to exit.
fn kill(record: &Record, init: &OwnedFd, group: Option<&Group>) -> Result<(), Failure> {
    match pidfd_send_signal(init, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(errno) => {
            return Err(Failure::io(format!("kill process {} of container {}", record.pid, record.id), errno));
        }
    }
    if let Some(group) = group.filter(|group| group.has_directory()) {
        group.kill()?;
    }
    let timeout = Timespec { tv_sec: EXIT_SECONDS, tv_nsec: 0 };
    match poll(&mut [PollFd::new(init, PollFlags::IN)], Some(&timeout)) {
        Ok(0) => Err(Failure::new(format!(
            "kill container {}: process {} is still running {EXIT_SECONDS} s after SIGKILL; try again",
            record.id, record.pid
        ))),
        Ok(_) => Ok(()),
        Err(errno) => Err(Failure::io("wait for the container to exit", errno)),
    }
}

/// Removes everything that a container has after the exit of its init: processes that outlived it, its cgroup, its
/// directory. After a failure another `delete` can continue.
pub(crate) fn clean(
    global: &Global,
    directory: Directory,
    record: Record,
    group: Option<Group>,
) -> Result<(), Failure> {
    if let Some(group) = group {
        // In its own PID namespace no process outlives the init.
        if !record.own_pids && group.has_directory() {
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
    match hook_output::hooks(&record) {
        Ok(hooks) => {
            warn_each(global, hooks.map_or(Vec::new(), |hooks| hooks.poststop(&record.state(oci::Status::Stopped))))
        }
        Err(failure) => warn(global, &format!("poststop hooks: {failure}")),
    }
    Ok(())
}
