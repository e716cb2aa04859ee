//! Whether a pod can be saved.

use std::{fs, os::unix::fs::MetadataExt};

use rustix::fs::OFlags;

use super::super::saved_pod::QEMU_MIN;
use crate::{
    Error, ErrorKind, VmProcess,
    container::vm::{connection, find_process, from_vmm},
    error::failed,
    node::{Handler, MIGRATION_MODE},
    parts::Parts,
    store::Sandbox,
};

/// End of the target of a link in `/proc/PID/fd` to a file that was deleted.
const DELETED: &str = " (deleted)";
/// Beginning of the target of one to memory.
const MEMORY: &str = "/memfd:";

/// Refuses a pod that cannot be saved, or not by the programs that run it.
///
/// # Errors
/// `Unimplemented` or `FailedPrecondition` with the reason.
pub(super) async fn check_support(parts: &Parts, sandbox: &Sandbox) -> Result<(), Error> {
    let unimplemented = |message: String| Error::new(ErrorKind::Unimplemented, message);
    let name = &sandbox.config().runtime_handler;
    let Handler::Vm(hypervisor) = parts.node.handlers.get(name)? else {
        let message = format!("runtime handler {name:?} cannot save pods; use one of kind \"vm\"");
        return Err(unimplemented(message));
    };
    if !sandbox.is_ready() {
        return Err(Error::state(format!("the pod is not ready: {}", sandbox.record().stage)));
    }
    let server = find_process(parts, sandbox.id(), VmProcess::FileServer);
    let server = server.ok_or_else(|| Error::state("the pod has no file server"))?;
    if !server.config().command.iter().any(|argument| argument == MIGRATION_MODE) {
        let program = hypervisor.handler.file_server.display();
        return Err(match hypervisor.file_server_migrates().await {
            true => Error::state(format!(
                "the file server of the pod was started by an earlier {program}; create the pod again"
            )),
            false => unimplemented(format!(
                "{program} cannot hand its state over: its --print-capabilities does not list migrate-precopy; install \
                 virtiofsd 1.13 or newer, and create the pod again"
            )),
        });
    }
    let (major, minor) = connection(parts, sandbox).await?.qemu.version().await.map_err(from_vmm)?;
    match (major, minor) >= QEMU_MIN {
        true => Ok(()),
        false => {
            let (min_major, min_minor) = QEMU_MIN;
            Err(unimplemented(format!(
                "QEMU {major}.{minor} cannot save the file system of a pod; install QEMU {min_major}.{min_minor} or newer, \
                 and create the pod again"
            )))
        }
    }
}

/// Refuses a pod whose containers have files open that were deleted: the restored file server could not open them. Blocks. `pid` is
/// that of the file server.
pub(super) fn check_deleted_files(pid: u32) -> Result<(), Error> {
    let directory = format!("/proc/{pid}/fd");
    let read = |cause| failed(format_args!("read {directory}"))(cause);
    for entry in fs::read_dir(&directory).map_err(read)? {
        let entry = entry.map_err(read)?;
        // One that was closed in the meantime is not open.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let target = target.to_string_lossy();
        // A file may have a name that ends like this.
        let is_deleted = || fs::metadata(entry.path()).is_ok_and(|file| file.nlink() == 0);
        if !target.starts_with('/') || !target.ends_with(DELETED) || target.starts_with(MEMORY) || !is_deleted() {
            continue;
        }
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", entry.file_name().to_string_lossy()));
        if info.is_ok_and(|info| is_open(&info)) {
            let path = target.trim_end_matches(DELETED);
            return Err(Error::state(format!(
                "a container has a file open that was deleted, which cannot be saved: {path}; have the container close it"
            )));
        }
    }
    Ok(())
}

/// Whether the description of a descriptor in `/proc/PID/fdinfo` is that of an open file. The file server has others, opened with
/// `O_PATH`, of what the guest only remembers.
fn is_open(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & OFlags::PATH.bits() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_that_was_deleted_is_found() {
        let mut file = Some(tempfile::tempfile().expect("a deleted file"));
        let refused = check_deleted_files(std::process::id()).expect_err("open").message;
        assert!(refused.contains("was deleted") && !refused.contains(DELETED), "{refused}");
        file.take();
        assert!(is_open("pos:\t0\nflags:\t0100002\n") && !is_open("pos:\t0\nflags:\t012100000\n") && !is_open(""));
    }
}
