//! Sends notifications to the service manager (sd_notify(3)), if `NOTIFY_SOCKET` is set. If the service manager does
//! not read them, watchdog and status notifications are dropped immediately, others after ten seconds.

use std::{
    env,
    ffi::OsString,
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::unix::ffi::OsStrExt,
    time::Duration,
};

use rustix::{
    fd::{AsFd, BorrowedFd},
    net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
        sendmsg_addr, socket_with,
        sockopt::{Timeout, set_socket_timeout},
    },
    time::{ClockId, clock_gettime},
};

/// Timeout for notifications that must not be lost.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Notifies that the daemon is ready.
pub(crate) fn ready() {
    notify("READY=1", &[], SEND_TIMEOUT);
}

/// Notifies that the daemon is stopping.
pub(crate) fn stopping() {
    notify("STOPPING=1", &[], SEND_TIMEOUT);
}

/// Notifies that the daemon reloads its configuration or is replaced. [`ready`] must follow.
pub(crate) fn reloading() {
    let now = clock_gettime(ClockId::Monotonic);
    let micros = now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1000;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"), &[], SEND_TIMEOUT);
}

/// Sets the status line of `systemctl status`.
pub(crate) fn status(line: &str) {
    notify(&format!("STATUS={}", line.replace('\n', "; ")), &[], Duration::ZERO);
}

/// Notifies the watchdog. Must be called more often than [`watchdog_interval`].
pub(crate) fn alive() {
    notify("WATCHDOG=1", &[], Duration::ZERO);
}

/// Asks the service manager to store the listening socket over a restart (`FileDescriptorStoreMax=`), so that
/// connections are queued in the meantime. Returns whether the request was sent.
pub(crate) fn store(listener: impl AsFd) -> bool {
    notify("FDSTORE=1\nFDNAME=socket\nFDPOLL=0", &[listener.as_fd()], SEND_TIMEOUT)
}

/// Returns the watchdog interval, if the watchdog is enabled (`WatchdogSec=`).
pub(crate) fn watchdog_interval() -> Option<Duration> {
    let is_ours = env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
    let micros = env::var("WATCHDOG_USEC").ok()?.parse().ok().filter(|micros| *micros > 0)?;
    is_ours.then(|| Duration::from_micros(micros))
}

fn notify(message: &str, files: &[BorrowedFd<'_>], timeout: Duration) -> bool {
    let Some(socket) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else { return false };
    let result = send(&socket, message, files, timeout);
    let is_dropped = |error: &io::Error| timeout.is_zero() && error.kind() == io::ErrorKind::WouldBlock;
    if let Some(error) = result.as_ref().err().filter(|error| !is_dropped(error)) {
        let assignment = message.split('\n').next().unwrap_or_default();
        tracing::warn!("send {assignment} to the service manager at {}: {error}", socket.display());
    }
    result.is_ok()
}

fn send(to: &OsString, message: &str, files: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<()> {
    let address = match to.as_bytes() {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        path => SocketAddrUnix::new(path)?,
    };
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut flags = SendFlags::NOSIGNAL;
    match timeout.is_zero() {
        true => flags |= SendFlags::DONTWAIT,
        false => set_socket_timeout(&socket, Timeout::Send, Some(timeout))?,
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("more than one descriptor"));
    }
    sendmsg_addr(&socket, &address, &[IoSlice::new(message.as_bytes())], &mut control, flags)?;
    Ok(())
}
