use std::{
    fs::{self, DirBuilder, File},
    io::{Read, Write},
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use rustix::fs::{FlockOperation, flock};

use crate::Failure;

/// Makes the folder of state and takes it for this process; the lock ends with the process, however that ends.
pub(crate) fn take(state_dir: &Path) -> Result<File, Failure> {
    // 0711: containers of other users pass through here to their own files.
    DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(state_dir)
        .map_err(|error| Failure::daemon(format!("make state folder {}: {error}", state_dir.display())))?;
    let path = state_dir.join("daemon.lock");
    let wrong = |error: std::io::Error| Failure::daemon(format!("lock {}: {error}", path.display()));
    let mut file =
        fs::File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(wrong)?;
    if let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(wrong(error.into()));
        }
        let mut owner = String::new();
        // Only for the message: the lock itself is what counts.
        let _ = (&mut file).take(16).read_to_string(&mut owner);
        let state = state_dir.display();
        return Err(Failure::daemon(format!(
            "another daemon (pid {}) has {state}; end it or use another --state-dir",
            owner.trim()
        )));
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(wrong)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_daemon_has_a_folder_until_it_ends() {
        let dir = tempfile::tempdir().expect("a folder");
        let state = dir.path().join("a/b");
        let first = take(&state).expect("free");
        let refused = take(&state).expect_err("taken").to_string();
        assert!(refused.contains(&format!("pid {}", std::process::id())), "{refused}");
        drop(first);
        take(&state).expect("free again");
    }
}
