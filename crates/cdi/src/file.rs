//! One file: opened as a plain file, bounded, parsed, checked.

use std::{
    fs::OpenOptions,
    io::Read,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::OFlags;

use crate::{check, spec::Spec};

/// Longest file: a node with a thousand devices has some hundred KiB.
const LONGEST: u64 = 8 << 20;

/// What tells one content of a file from another without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Mark {
    /// `None`: it is gone, or cannot be looked at.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let about = std::fs::metadata(path).ok()?;
        Some(Self {
            device: about.dev(),
            inode: about.ino(),
            size: about.size(),
            modified: (about.mtime(), about.mtime_nsec()),
            changed: (about.ctime(), about.ctime_nsec()),
        })
    }
}

pub(crate) fn read(path: &Path) -> Result<Spec, String> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path).map_err(|e| e.to_string())?;
    if !file.metadata().map_err(|e| e.to_string())?.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut text = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut text).map_err(|e| e.to_string())?;
    if text.len() as u64 > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    let spec = parse(&text, path.extension().is_some_and(|extension| extension == "yaml"))?;
    check::check(&spec)?;
    Ok(spec)
}

pub(crate) fn parse(text: &[u8], yaml: bool) -> Result<Spec, String> {
    // A field that is null is absent, as to the readers of CDI that are written in Go.
    if !yaml {
        return oci::from_json(text).map_err(|e| e.to_string());
    }
    // As those who write such files know it from Go's reader: 0660 is octal.
    let options = || serde_saphyr::options! { legacy_octal_numbers: true };
    let text = std::str::from_utf8(text).map_err(|e| e.to_string())?;
    serde_saphyr::from_str_with_options(text, options()).or_else(|error| {
        // In YAML a key without a value is null.
        let tree: Option<serde_json::Value> = serde_saphyr::from_str_with_options(text, options()).ok();
        let spec = tree.and_then(|tree| oci::from_json(tree.to_string().as_bytes()).ok());
        spec.ok_or_else(|| error.to_string())
    })
}
