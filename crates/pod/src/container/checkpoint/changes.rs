//! What a container changed in its root: `rootfs-diff.tar` and `deleted.files`, out of its writable layer.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use crate::{Error, container::Container, engine::Inner, error::failed};

/// Most files of a writable layer that are taken along.
const FILES_MAX: usize = 4 << 20;

pub(super) fn write(engine: &Inner, container: &Container, folder: &Path) -> Result<(), Error> {
    let upper = engine.images.upper(container.id());
    let (diff, deleted) = (folder.join("rootfs-diff.tar"), folder.join("deleted.files"));
    let file = File::create(&diff).map_err(failed(format_args!("create {}", diff.display())))?;
    let gone = pack(&upper, BufWriter::new(file)).map_err(failed("pack the changes of its root"))?;
    let text = serde_json::to_vec(&gone).map_err(failed("write the names of deleted files"))?;
    fs::write(&deleted, text).map_err(failed(format_args!("write {}", deleted.display())))
}

/// Writes what is there, and returns what is not there any more (whiteouts: character devices of number 0).
fn pack(upper: &Path, to: impl Write) -> std::io::Result<Vec<String>> {
    let mut tar = tar::Builder::new(to);
    tar.follow_symlinks(false);
    tar.mode(tar::HeaderMode::Complete);
    let mut gone = Vec::new();
    let mut left = vec![upper.to_owned()];
    let mut count = 0;
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            count += 1;
            if count > FILES_MAX {
                return Err(std::io::Error::other(format!("more than {FILES_MAX} files")));
            }
            let path = entry.path();
            // It changes while it is read: the container runs on.
            let Ok(about) = entry.metadata() else { continue };
            let name = path.strip_prefix(upper).unwrap_or(&path).to_owned();
            let kind = about.file_type();
            if kind.is_char_device() && about.rdev() == 0 {
                gone.push(name.to_string_lossy().into_owned());
            } else if kind.is_socket() {
                // Nothing that a file could hold.
            } else {
                match tar.append_path_with_name(&path, &name) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                    result => result?,
                }
                if about.is_dir() {
                    left.push(path);
                }
            }
        }
    }
    tar.into_inner()?.flush()?;
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_and_what_is_gone() {
        let dir = tempfile::tempdir().expect("folder");
        fs::create_dir(dir.path().join("etc")).expect("folder");
        fs::write(dir.path().join("etc/new"), "text").expect("file");
        std::os::unix::fs::symlink("/nowhere", dir.path().join("link")).expect("symlink");
        let whiteout = dir.path().join("etc/old");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &whiteout, rustix::fs::FileType::CharacterDevice, mode, 0).expect("mknod");
        let mut bytes = Vec::new();
        assert_eq!(pack(dir.path(), &mut bytes).expect("packed"), ["etc/old"]);
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut names: Vec<_> =
            archive.entries().expect("entries").map(|e| e.expect("entry").path().expect("path").into_owned()).collect();
        names.sort();
        assert_eq!(names, ["etc", "etc/new", "link"].map(std::path::PathBuf::from));
    }
}
