use std::{
    fs::{self, DirBuilder, Permissions},
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt, PermissionsExt},
        net::UnixListener,
    },
    path::Path,
};

use crate::Failure;

/// Listens at this path, for root alone. What lies there is replaced: the lock says that no daemon serves it.
///
/// The socket is made under another name and renamed, so that it never answers with other permissions, and so that a
/// client sees the old one or the new one, never none.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, Failure> {
    let wrong =
        |what: &str, error: std::io::Error| Failure::daemon(format!("{what} socket {}: {error}", path.display()));
    if let Some(directory) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(directory)
            .map_err(|e| wrong("make the directory of", e))?;
    }
    remove_unpublished(path);
    let fresh = path.with_extension(format!("{}", std::process::id()));
    let listener = UnixListener::bind(&fresh).map_err(|e| wrong("bind", e))?;
    let published = fs::set_permissions(&fresh, Permissions::from_mode(0o600)).and_then(|()| fs::rename(&fresh, path));
    if let Err(error) = published {
        let _ = fs::remove_file(&fresh);
        return Err(wrong("publish", error));
    }
    Ok(listener)
}

/// Removes sockets of daemons that were killed between bind and rename: `<path without extension>.<pid>`. The lock says
/// that no other daemon is between the two.
fn remove_unpublished(path: &Path) {
    let entries = path.parent().and_then(|directory| fs::read_dir(directory).ok()).into_iter().flatten().flatten();
    for entry in entries.map(|entry| entry.path()) {
        let pid = entry.extension().and_then(|pid| pid.to_str()?.parse::<u32>().ok());
        let is_socket = fs::symlink_metadata(&entry).is_ok_and(|about| about.file_type().is_socket());
        if entry.file_stem() == path.file_stem() && pid.is_some() && is_socket {
            let _ = fs::remove_file(&entry);
        }
    }
}

/// For requests. The listener stays with the caller: as long as anybody holds it, who connects waits and is not
/// refused.
pub(crate) fn accepting(listener: &UnixListener) -> Result<tokio::net::UnixListener, Failure> {
    let wrong = |error: std::io::Error| Failure::daemon(format!("listen: {error}"));
    let accepting = listener.try_clone().map_err(wrong)?;
    accepting.set_nonblocking(true).map_err(wrong)?;
    tokio::net::UnixListener::from_std(accepting).map_err(wrong)
}

/// Takes the socket away, so that a client is told at once that no daemon answers.
pub(crate) fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        // After a reset its directory is gone.
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
    fn a_dead_daemons_socket_is_replaced_by_one_for_root_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("run/x.sock");
        drop(listen(&path).expect("first"));
        // As a daemon leaves it that is killed before it publishes its socket.
        drop(UnixListener::bind(dir.path().join("run/x.4194305")).expect("unpublished"));
        UnixStream::connect(&path).expect_err("nobody listens");
        let _listener = listen(&path).expect("second");
        UnixStream::connect(&path).expect("somebody listens");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path().join("run")).expect("read").count(), 1, "nothing beside it");
        remove(&path);
        assert!(!path.exists());
    }
}
