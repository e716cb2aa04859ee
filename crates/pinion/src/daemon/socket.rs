use std::{
    fs::{self, DirBuilder, Permissions},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
};

use tokio::net::UnixListener;

use crate::Failure;

/// Listens at this path, for root alone. What lies there is replaced: the lock says that no daemon serves it.
///
/// The socket is made under another name and renamed, so that it never answers with other permissions, and so that a
/// client sees the old one or the new one, never none.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, Failure> {
    let wrong =
        |what: &str, error: std::io::Error| Failure::daemon(format!("{what} socket {}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o711).create(folder).map_err(|e| wrong("make the folder of", e))?;
    }
    let fresh = path.with_extension(format!("{}", std::process::id()));
    // Left by a daemon of the same pid that died right here.
    let _ = fs::remove_file(&fresh);
    let listener = UnixListener::bind(&fresh).map_err(|e| wrong("bind", e))?;
    let published = fs::set_permissions(&fresh, Permissions::from_mode(0o600)).and_then(|()| fs::rename(&fresh, path));
    if let Err(error) = published {
        let _ = fs::remove_file(&fresh);
        return Err(wrong("publish", error));
    }
    Ok(listener)
}

/// Takes the socket away, so that a client is told at once that no daemon answers.
pub(crate) fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!("remove socket {}: {error}", path.display());
    }
}
