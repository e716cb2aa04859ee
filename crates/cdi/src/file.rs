//! Reads a specification file: opens it as a regular file, limits its size, parses and validates it.

use std::{
    fs::OpenOptions,
    io::Read,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::OFlags;

use crate::{check, spec::Spec};

/// The largest file in bytes; a node with a thousand devices has some hundred KiB.
const SIZE_MAX: u64 = 8 << 20;

/// Metadata that changes whenever the contents of a file change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileVersion {
    /// Returns `None` if the file does not exist or cannot be accessed.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

pub(crate) fn read(path: &Path) -> Result<Spec, String> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path).map_err(|e| e.to_string())?;
    if !file.metadata().map_err(|e| e.to_string())?.is_file() {
        return Err("not a regular file".to_owned());
    }
    let mut text = Vec::new();
    file.take(SIZE_MAX + 1).read_to_end(&mut text).map_err(|e| e.to_string())?;
    if text.len() as u64 > SIZE_MAX {
        return Err(format!("larger than {SIZE_MAX} bytes"));
    }
    let spec = parse(&text, path.extension().is_some_and(|extension| extension == "yaml"))?;
    check::check(&spec)?;
    Ok(spec)
}

pub(crate) fn parse(text: &[u8], yaml: bool) -> Result<Spec, String> {
    // A field that is null is absent, as in CDI implementations written in Go.
    if !yaml {
        return oci::from_json(text).map_err(|e| e.to_string());
    }
    // 0660 is octal, as in Go's YAML parser.
    let options = || serde_saphyr::options! { legacy_octal_numbers: true };
    let text = std::str::from_utf8(text).map_err(|e| e.to_string())?;
    serde_saphyr::from_str_with_options(text, options()).or_else(|error| {
        // In YAML the value of a key without a value is null.
        let tree: Option<serde_json::Value> = serde_saphyr::from_str_with_options(text, options()).ok();
        let spec = tree.and_then(|tree| oci::from_json(tree.to_string().as_bytes()).ok());
        spec.ok_or_else(|| error.to_string())
    })
}
