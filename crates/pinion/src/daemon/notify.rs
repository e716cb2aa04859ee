//! Words to the service manager (sd_notify(3)); without `NOTIFY_SOCKET` nobody wants them. No thread waits for one that
//! does not read: signs of life and status lines are then dropped, the others after ten seconds.

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

/// How long a word is waited for that must not be lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// The daemon answers.
pub(crate) fn ready() {
    tell("READY=1", &[], PATIENCE);
}

/// The daemon ends.
pub(crate) fn stopping() {
    tell("STOPPING=1", &[], PATIENCE);
}

/// The daemon takes up another configuration or program, and says [`ready`] when it has.
pub(crate) fn reloading() {
    let now = clock_gettime(ClockId::Monotonic);
    let micros = now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1000;
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"), &[], PATIENCE);
}

/// One line for `systemctl status`.
pub(crate) fn status(line: &str) {
    tell(&format!("STATUS={}", line.replace('\n', "; ")), &[], Duration::ZERO);
}

/// The daemon is alive: to be said more often than [`watchdog`].
pub(crate) fn alive() {
    tell("WATCHDOG=1", &[], Duration::ZERO);
}

/// Has the listening socket kept over a restart (`FileDescriptorStoreMax=`): who connects meanwhile waits and is not
/// refused. Whether there is a service manager that may do so.
pub(crate) fn store(listener: impl AsFd) -> bool {
    tell("FDSTORE=1\nFDNAME=socket\nFDPOLL=0", &[listener.as_fd()], PATIENCE)
}

/// How often a sign of life is wanted, where one is (`WatchdogSec=`).
pub(crate) fn watchdog() -> Option<Duration> {
    let of_us = env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
    let micros = env::var("WATCHDOG_USEC").ok()?.parse().ok().filter(|micros| *micros > 0)?;
    of_us.then(|| Duration::from_micros(micros))
}

fn tell(words: &str, files: &[BorrowedFd<'_>], patience: Duration) -> bool {
    let Some(socket) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else { return false };
    let told = send(&socket, words, files, patience);
    let dropped = |error: &io::Error| patience.is_zero() && error.kind() == io::ErrorKind::WouldBlock;
    if let Some(error) = told.as_ref().err().filter(|error| !dropped(error)) {
        let word = words.split('\n').next().unwrap_or_default();
        tracing::warn!("tell {word} to the service manager at {}: {error}", socket.display());
    }
    told.is_ok()
}

fn send(to: &OsString, words: &str, files: &[BorrowedFd<'_>], patience: Duration) -> io::Result<()> {
    let address = match to.as_bytes() {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        path => SocketAddrUnix::new(path)?,
    };
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut flags = SendFlags::NOSIGNAL;
    match patience.is_zero() {
        true => flags |= SendFlags::DONTWAIT,
        false => set_socket_timeout(&socket, Timeout::Send, Some(patience))?,
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("more descriptors than one"));
    }
    sendmsg_addr(&socket, &address, &[IoSlice::new(words.as_bytes())], &mut control, flags)?;
    Ok(())
}
