//! The child that executes a runtime.

use std::{
    ffi::{CString, OsStr},
    fs::File,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use monitor_api::{Attachments, CREATE_LOCK, DELETE_LOCK, PRIVATE, Role, START_LOCK};
use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, flock, ftruncate},
    io::{FdFlags, fcntl_setfd},
    mount::{MountFlags, MountPropagationFlags, MoveMountFlags, mount, mount_bind, mount_change, move_mount},
    process::{Pid, Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit},
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
    thread::{ThreadNameSpaceType, move_into_thread_name_spaces},
};
use syscall::{
    clone::{Child, Clone3},
    exec::StringArray,
};

use super::command_line::{Verb, strings};
use crate::process::start_time;

const FIRST_AFTER_STDIO: i32 = 3;
/// Exit code of a child that could not execute the runtime.
const NOT_EXECUTED: i32 = 125;
/// Options of the tmpfs for the mounts of a container: only root of the node reads it, and others pass it on the way to a
/// mount.
const TMPFS_OPTIONS: &str = "mode=0711,size=1m";

/// Limits that the runtime gets in place of those of the monitor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessLimits {
    pub(crate) open_files: Option<Rlimit>,
    pub(crate) oom_score_adj: i32,
}

/// Everything that the child needs.
pub(super) struct Launch<'a> {
    pub(super) verb: Verb,
    pub(super) arguments: StringArray,
    pub(super) environment: &'a [String],
    /// Where the root file system and the volumes are mounted, if they are attached.
    pub(super) bundle: &'a str,
    /// Working directory; `None`: the root.
    pub(super) directory: Option<&'a str>,
    pub(super) attachments: Attachments,
    /// Standard output, unless it is attached.
    pub(super) output: BorrowedFd<'a>,
    /// Standard error, unless it is attached. Errors of the child are written to it.
    pub(super) log: BorrowedFd<'a>,
    /// Mount namespace to enter.
    pub(super) mounts: BorrowedFd<'a>,
    pub(super) limits: ProcessLimits,
}

impl Launch<'_> {
    /// Clones the child, which executes the runtime.
    pub(super) fn clone(self) -> io::Result<Child> {
        let environment = strings(self.environment)?;
        let program = self.arguments.strings().first().ok_or_else(|| io::Error::other("the runtime has no program"))?;
        let (program, parent) = (program.clone(), rustix::process::getpid());
        Clone3::default().fork(|| {
            let error = match self.enter(parent) {
                Ok(_lock) => {
                    let error = syscall::exec::execve(&program, &self.arguments, &environment);
                    format!("execute {}: {error}", program.to_string_lossy())
                }
                Err(error) => error,
            };
            report(self.log, &error);
            NOT_EXECUTED
        })
    }

    /// In the child: everything before execve. Returns a lock that all processes of the command inherit.
    fn enter(&self, parent: Pid) -> Result<Option<OwnedFd>, String> {
        during("close descriptors", self.close_descriptors())?;
        syscall::signals::reset_for_exec();
        let _ = rustix::process::setsid();
        // A `start` that is killed may leave a container behind that can be started no more, so it outlives the
        // monitor.
        if self.verb != Verb::Start {
            during("set the parent death signal", set_parent_process_death_signal(Some(Signal::KILL)))?;
        }
        if rustix::process::getppid() != Some(parent) {
            return Err("the monitor died".to_owned());
        }
        let _ = syscall::scheduling::reset_cpu_affinity();
        // Only a privileged monitor has lowered its score, and it can raise it again.
        let _ = std::fs::write("/proc/self/oom_score_adj", self.limits.oom_score_adj.to_string());
        if let Some(limit) = self.limits.open_files {
            let _ = setrlimit(Resource::Nofile, limit);
        }
        let entered = move_into_thread_name_spaces(self.mounts, ThreadNameSpaceType::MOUNT);
        during("enter the mount namespace", entered)?;
        let lock = self.lock()?;
        if self.attachments.iter().any(|(role, _)| *role == Role::Rootfs) {
            self.mount_all()?;
        }
        if let Some(directory) = self.directory {
            during(&format!("change to directory {directory}"), rustix::process::chdir(directory))?;
        }
        rustix::process::umask(Mode::from_raw_mode(0o022));
        during("set up stdio", self.set_stdio())?;
        if let Some(lock) = &lock {
            during("keep the lock", fcntl_setfd(lock, FdFlags::empty()))?;
        }
        Ok(lock)
    }

    /// Locks the file of this command in the bundle; a program that is none of an OCI runtime has no bundle. `delete` also runs
    /// without the lock: after the bundle was removed, and while what an earlier `delete` left behind holds it.
    fn lock(&self) -> Result<Option<OwnedFd>, String> {
        let name = match self.verb {
            Verb::Create { .. } => CREATE_LOCK,
            Verb::Start => START_LOCK,
            Verb::Delete { .. } => DELETE_LOCK,
            Verb::Plain => return Ok(None),
        };
        let path = Path::new(self.bundle).join(name);
        match lock(&path) {
            Err(_) if matches!(self.verb, Verb::Delete { .. }) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(format!("another {} of the container is running", self.verb.name()))
            }
            lock => during(&format!("lock {}", path.display()), lock).map(Some),
        }
    }

    fn close_descriptors(&self) -> io::Result<()> {
        let mut keep: Vec<i32> = self.attachments.iter().map(|(_, fd)| fd.as_raw_fd()).collect();
        keep.extend([0, 1, 2, self.output.as_raw_fd(), self.log.as_raw_fd(), self.mounts.as_raw_fd()]);
        syscall::descriptors::close_all_except(&mut keep)
    }

    /// Mounts the root file system, the volumes and the namespaces of the container in the bundle, in a new mount
    /// namespace that sees what the node mounts later, and propagates nothing to it.
    fn mount_all(&self) -> Result<(), String> {
        during("create a mount namespace", syscall::mount_namespace::unshare_mounts())?;
        let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        during("set the propagation of mounts", mount_change("/", downstream))?;
        let bundle = Path::new(self.bundle);
        let private = bundle.join(PRIVATE);
        let options = CString::new(TMPFS_OPTIONS).map_err(|error| error.to_string())?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        during("mount a tmpfs in the bundle", mount("tmpfs", &private, "tmpfs", flags, options.as_c_str()))?;
        for (role, file) in self.attachments.iter() {
            match role {
                Role::Rootfs => attach(file, &bundle.join("rootfs"))?,
                Role::Mount(index) => {
                    let target = private.join(format!("mount-{index}"));
                    create_like(file, &target)?;
                    attach(file, &target)?;
                }
                Role::Namespace(kind) => bind_namespace(file, &private.join(format!("namespace-{}", kind.name())))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes the attached streams stdio. A command without streams writes to the log.
    fn set_stdio(&self) -> io::Result<()> {
        // In the mount namespace of the node; that of the monitor has no devices.
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let stream = |role: Role| self.attachments.iter().find(|(other, _)| *other == role).map(|(_, fd)| fd.as_fd());
        dup2_stdin(stream(Role::Stdin).unwrap_or(null.as_fd()))?;
        dup2_stdout(stream(Role::Stdout).unwrap_or(self.output))?;
        dup2_stderr(stream(Role::Stderr).unwrap_or(self.log))?;
        syscall::descriptors::close_on_exec_from(FIRST_AFTER_STDIO)?;
        // The runtime opens it again, by its number.
        Ok(fcntl_setfd(self.log, FdFlags::empty())?)
    }
}

/// Locks the file that shows whether a command is running.
fn lock(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let lock = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    ftruncate(&lock, 0)?;
    // A pid alone may be that of another process later.
    let pid = rustix::process::getpid();
    let start_time = start_time(pid.as_raw_pid()).unwrap_or(0);
    rustix::io::write(&lock, format!("{pid} {start_time}\n").as_bytes())?;
    Ok(lock)
}

fn during<T, E: std::fmt::Display>(operation: &str, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| format!("{operation}: {error}"))
}

/// Attaches a detached mount.
fn attach(mount: &OwnedFd, target: &Path) -> Result<(), String> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    during(&format!("mount {}", target.display()), move_mount(mount, "", CWD, target, flags))
}

/// Creates an empty directory or file as the mount point for a mount whose root is a directory or a file.
fn create_like(mount: &OwnedFd, target: &Path) -> Result<(), String> {
    let operation = format!("create {}", target.display());
    let stat = during(&operation, rustix::fs::statat(mount, "", AtFlags::EMPTY_PATH))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => during(&operation, std::fs::create_dir(target)),
        _ => during(&operation, File::create_new(target)).map(drop),
    }
}

/// Makes a namespace visible as a file.
fn bind_namespace(namespace: &OwnedFd, target: &Path) -> Result<(), String> {
    let operation = format!("bind namespace {}", target.display());
    during(&operation, File::create_new(target))?;
    let source = format!("/proc/self/fd/{}", namespace.as_raw_fd());
    during(&operation, mount_bind(OsStr::from_bytes(source.as_bytes()), target))
}

/// Writes an error of the child to the log.
fn report(log: BorrowedFd<'_>, error: &str) {
    if let Ok(log) = log.try_clone_to_owned() {
        let _ = writeln!(File::from(log), "{error}");
    }
}
