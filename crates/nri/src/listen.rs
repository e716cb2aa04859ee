//! The socket that plugins connect to.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt},
    path::Path,
    sync::{Arc, Weak},
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::Semaphore,
};

use crate::{
    plugins::{PLUGINS_MAX, Plugins},
    session,
};

/// How long the socket rests if connections cannot be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Creates the socket, which only root can connect to.
pub(crate) fn bind(path: &Path) -> Result<std::os::unix::net::UnixListener, String> {
    let failed = |error: std::io::Error| format!("create the NRI socket {}: {error}", path.display());
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    }
    // Only a socket that an earlier daemon left over is removed.
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        if is_served(path) {
            return Err(format!(
                "{}: another engine serves this NRI socket; stop it, or configure another path",
                path.display()
            ));
        }
        fs::remove_file(path).map_err(failed)?;
    }
    let listener = std::os::unix::net::UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// Reports whether a process accepts connections at a socket. Waits a moment for one that is about to end.
fn is_served(path: &Path) -> bool {
    const TRIES: usize = 20;
    for _ in 0..TRIES {
        // Not blocking: the queue of a process that hangs may be full.
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let Ok(socket) = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None) else { return false };
        let Ok(address) = SocketAddrUnix::new(path) else { return false };
        if matches!(connect(&socket, &address), Err(Errno::CONNREFUSED | Errno::NOENT)) {
            return false;
        }
        std::thread::sleep(PAUSE / 2);
    }
    true
}

/// Accepts plugins for as long as the engine exists.
pub(crate) async fn accept(plugins: Weak<Plugins>, listener: UnixListener) {
    let permits = Arc::new(Semaphore::new(PLUGINS_MAX));
    let Some(mut gone) = plugins.upgrade().map(|plugins| plugins.changed.subscribe()) else { return };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // Fails when the engine is gone.
            changed = gone.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        let socket = match accepted {
            Ok((socket, _)) => socket,
            Err(error) => {
                tracing::warn!(%error, "an NRI plugin could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(plugins) = plugins.upgrade() else { return };
        // The mode of the socket is set after it was created.
        if !is_own(&socket) {
            continue;
        }
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            tracing::warn!("an NRI plugin is refused: {PLUGINS_MAX} are connected");
            continue;
        };
        tokio::spawn(async move {
            match session::connect(&plugins, socket, None).await {
                Ok(plugin) => {
                    drop(plugins);
                    plugin.closed().await;
                }
                Err(reason) => tracing::warn!(reason, "an NRI plugin could not be registered"),
            }
            drop(permit);
        });
    }
}

fn is_own(socket: &UnixStream) -> bool {
    socket.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}
