//! clone3, seccomp and user namespaces, tried by children of this process.

use std::{fs, io};

use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, open},
    io::Errno,
    process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, set_parent_process_death_signal, waitid},
    thread::{UnshareFlags, set_no_new_privs},
};
use syscall::clone::{Child, Clone3};

use super::Outcome;

/// A range of ids that is mapped for a probe.
const MAP: &str = "0 100000 65536";
/// A classic BPF program that allows everything: `ret SECCOMP_RET_ALLOW` (`struct sock_filter`).
const ALLOW: [u8; 8] = [0x06, 0, 0, 0, 0, 0, 0xff, 0x7f];

pub(super) struct Children {
    pub(super) clone3: Outcome,
    pub(super) seccomp: Outcome,
    pub(super) user_namespace: Outcome,
    /// A user namespace that maps [`MAP`].
    pub(super) namespace: Option<OwnedFd>,
}

pub(super) fn probe() -> Children {
    let (clone3, seccomp) = match Clone3::default().fork(load_filter) {
        Ok(child) => (Outcome::Works, seccomp(&child)),
        Err(error) => {
            let outcome = refused(&error);
            (outcome.clone(), not_tried(outcome))
        }
    };
    let namespace = (clone3 == Outcome::Works).then(user_namespace);
    let user_namespace = match &namespace {
        None => not_tried(clone3.clone()),
        Some(Ok(_)) => Outcome::Works,
        Some(Err(error)) => Outcome::Fails(error.to_string()),
    };
    Children { clone3, seccomp, user_namespace, namespace: namespace.and_then(Result::ok) }
}

fn refused(error: &io::Error) -> Outcome {
    match Errno::from_io_error(error) {
        // With these arguments the only other reason is a process with several threads.
        Some(Errno::INVAL) => Outcome::NotTried("this process has several threads".into()),
        _ => Outcome::Fails(error.to_string()),
    }
}

fn not_tried(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Fails(error) => Outcome::NotTried(format!("clone3: {error}")),
        other => other,
    }
}

/// Runs in a child; returns the error number.
fn load_filter() -> i32 {
    let loaded = set_no_new_privs(true).map_err(io::Error::from);
    let loaded = loaded.and_then(|()| syscall::seccomp::load_filter(&ALLOW, 0).map(drop));
    loaded.err().map_or(0, |error| error.raw_os_error().unwrap_or(1))
}

fn seccomp(child: &Child) -> Outcome {
    use rustix::fd::AsFd;
    match waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED) {
        Ok(Some(status)) => match status.exit_status() {
            Some(0) => Outcome::Works,
            Some(code) => Outcome::Fails(io::Error::from_raw_os_error(code).to_string()),
            None => Outcome::Fails("a process with a filter was killed".into()),
        },
        other => Outcome::NotTried(format!("wait for the child: {other:?}")),
    }
}

/// Creates a user namespace with [`MAP`]. The child that it is made for waits until it is killed.
fn user_namespace() -> io::Result<OwnedFd> {
    use rustix::fd::AsFd;
    let clone = Clone3 { namespaces: Some(UnshareFlags::NEWUSER), ..Clone3::default() };
    let child = clone.fork(|| {
        // If the parent is killed, nothing else ends this process.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        rustix::event::pause();
        0
    })?;
    let namespace = mapped(&child);
    let _ = pidfd_send_signal(&child.pidfd, Signal::KILL);
    let _ = waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED);
    namespace
}

fn mapped(child: &Child) -> io::Result<OwnedFd> {
    let directory = format!("/proc/{}", child.pid);
    fs::write(format!("{directory}/uid_map"), MAP)?;
    fs::write(format!("{directory}/gid_map"), MAP)?;
    Ok(open(format!("{directory}/ns/user"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}
