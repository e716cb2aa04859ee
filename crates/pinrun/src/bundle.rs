//! A bundle: reads `config.json` and makes its paths absolute.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use rustix::{
    fd::{AsFd, BorrowedFd},
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
};

use crate::failure::Failure;

/// Largest `config.json` in bytes; those of engines have tens of KiB.
const CONFIG_MAX: usize = 16 << 20;
/// Bytes of the first read: more than nearly all of these files have.
const FIRST_READ: usize = 32 << 10;

/// The directory, the spec and the root of a container.
#[derive(Debug)]
pub(crate) struct Bundle {
    /// Absolute.
    pub(crate) path: PathBuf,
    pub(crate) spec: oci::Spec,
    /// Absolute.
    pub(crate) rootfs: PathBuf,
}

/// Changes to the bundle's directory (by default the current one), to which the paths of its spec are relative, and
/// reads the spec.
pub(crate) fn load(path: Option<&OsStr>) -> Result<Bundle, Failure> {
    if let Some(path) = path.filter(|path| !path.is_empty()) {
        rustix::process::chdir(path).map_err(|error| Failure::io(format!("enter the bundle {path:?}"), error))?;
    }
    let path = std::env::current_dir().map_err(|error| Failure::io("find the bundle's directory", error))?;
    let mut spec: oci::Spec = read_json(Path::new("config.json"), &format!("config.json of the bundle {path:?}"))?;
    let Some(root) = spec.root.as_ref().filter(|root| !root.path.is_empty()) else {
        return Err(Failure::new(format!("config.json of the bundle {path:?}: root.path: is missing")));
    };
    let rootfs = path.join(&root.path);
    for mount in &mut spec.mounts {
        absolute_source(mount, &path);
    }
    Ok(Bundle { path, spec, rootfs })
}

/// Makes the source of a bind mount absolute; it may be relative to the bundle.
fn absolute_source(mount: &mut oci::Mount, bundle: &Path) {
    let binds =
        mount.kind.as_deref() == Some("bind") || mount.options.iter().any(|word| word == "bind" || word == "rbind");
    if let Some(source) = mount.source.as_mut().filter(|source| binds && !source.is_empty() && !source.starts_with('/'))
    {
        *source = bundle.join(&*source).to_string_lossy().into_owned();
    }
}

/// Parses a JSON file of at most [`CONFIG_MAX`] bytes; `name` names it in errors.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path, name: &str) -> Result<T, Failure> {
    let opened = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    from_file(opened.map_err(|error| Failure::io(format!("open {name}"), error))?.as_fd(), name)
}

/// Parses JSON of at most [`CONFIG_MAX`] bytes, with as few reads as possible; `name` names it in errors.
pub(crate) fn from_file<T: serde::de::DeserializeOwned>(file: BorrowedFd<'_>, name: &str) -> Result<T, Failure> {
    let mut text = vec![0; FIRST_READ];
    let mut filled = 0;
    loop {
        match rustix::io::read(file, &mut text[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Failure::io(format!("read {name}"), errno)),
        }
        if filled > CONFIG_MAX {
            return Err(Failure::new(format!("{name}: is larger than {CONFIG_MAX} bytes")));
        }
        if filled == text.len() {
            text.resize(filled * 2, 0);
        }
    }
    oci::from_json(&text[..filled]).map_err(|error| Failure::new(format!("{name}: {error}")))
}
