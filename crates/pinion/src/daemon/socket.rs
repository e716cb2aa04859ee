use std::{
    fs::{self, DirBuilder, Permissions},
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt, PermissionsExt},
        net::UnixListener,
    },
    path::Path,
};

use crate::Failure;

/// Listens on this path, for root only. An existing file is replaced: because of the lock, no daemon uses it.
///
/// The socket is created under another name and renamed, so that it is never accessible with other permissions, and so
/// that clients always find either the old socket or the new one.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, Failure> {
    let failed = |operation: &str, error: std::io::Error| {
        Failure::daemon(format!("{operation} socket {}: {error}", path.display()))
    };
    if let Some(directory) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(directory)
            .map_err(|e| failed("create the directory of", e))?;
    }
    remove_unpublished(path);
    let temporary = path.with_extension(format!("{}", std::process::id()));
    let listener = UnixListener::bind(&temporary).map_err(|e| failed("bind", e))?;
    let published =
        fs::set_permissions(&temporary, Permissions::from_mode(0o600)).and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = published {
        let _ = fs::remove_file(&temporary);
        return Err(failed("publish", error));
    }
    Ok(listener)
}

/// Removes sockets of daemons that were killed between bind and rename: `<path without extension>.<pid>`. Because of
/// the lock, no other daemon is between the two steps.
fn remove_unpublished(path: &Path) {
    let entries = path.parent().and_then(|directory| fs::read_dir(directory).ok()).into_iter().flatten().flatten();
    for entry in entries.map(|entry| entry.path()) {
        let pid = entry.extension().and_then(|pid| pid.to_str()?.parse::<u32>().ok());
        let is_socket = fs::symlink_metadata(&entry).is_ok_and(|meta| meta.file_type().is_socket());
        if entry.file_stem() == path.file_stem() && pid.is_some() && is_socket {
            let _ = fs::remove_file(&entry);
        }
    }
}

/// Returns a listener that accepts connections. The caller keeps the original: as long as a process holds it, new
/// connections are queued and not refused.
pub(crate) fn acceptor(listener: &UnixListener) -> Result<tokio::net::UnixListener, Failure> {
    let failed = |error: std::io::Error| Failure::daemon(format!("listen on the socket: {error}"));
    let acceptor = listener.try_clone().map_err(failed)?;
    acceptor.set_nonblocking(true).map_err(failed)?;
    tokio::net::UnixListener::from_std(acceptor).map_err(failed)
}

/// Removes the socket, so that clients fail at once while no daemon is running.
pub(crate) fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        // A reset removes its directory.
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!("remove socket {}: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_socket_of_an_exited_daemon_is_replaced_by_one_for_root_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("run/x.sock");
        drop(listen(&path).expect("first"));
        // A daemon that is killed before it publishes its socket leaves this file.
        drop(UnixListener::bind(dir.path().join("run/x.4194305")).expect("unpublished"));
        UnixStream::connect(&path).expect_err("connection refused");
        let _listener = listen(&path).expect("second");
        UnixStream::connect(&path).expect("connected");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path().join("run")).expect("read").count(), 1, "no other file");
        remove(&path);
        assert!(!path.exists());
    }
}
