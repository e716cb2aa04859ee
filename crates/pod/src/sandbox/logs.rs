//! Logs of a pod.

use std::{fs, io, path::Path};

/// Removes a pod's log directory with the logs in it, and no other files: a path in a record must never cause the
/// removal of arbitrary directories. Missing files are not an error, because the daemon and the command line may both
/// remove them.
///
/// # Errors
/// The error of the first file that cannot be removed.
pub fn remove_logs(directory: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            ignore_missing(fs::remove_file(&path))?;
        }
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        outcome => ignore_missing(outcome),
    }
}

/// Converts the error for a missing file to success.
pub(super) fn ignore_missing(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_logs_are_removed_and_missing_files_are_not_an_error() {
        let root = tempfile::tempdir().expect("a directory");
        let logs = root.path().join("logs");
        fs::create_dir(&logs).expect("mkdir");
        fs::write(logs.join("a.log"), "").expect("write");
        fs::write(logs.join("note"), "").expect("write");
        remove_logs(&logs).expect("remove logs");
        assert!(!logs.join("a.log").exists() && logs.join("note").exists());
        fs::remove_file(logs.join("note")).expect("remove");
        remove_logs(&logs).expect("remove logs");
        assert!(!logs.exists());
        remove_logs(&logs).expect("already removed");
    }
}
