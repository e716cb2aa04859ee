//! A bundle: `config.json`, read once and made absolute.

use std::{
    ffi::OsStr,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use crate::failure::Failure;

/// Largest `config.json`: engines write some ten KiB.
const CONFIG_MAX: u64 = 16 << 20;

/// What a container is made of.
#[derive(Debug)]
pub(crate) struct Bundle {
    /// Absolute.
    pub(crate) path: PathBuf,
    pub(crate) spec: oci::Spec,
    /// Absolute.
    pub(crate) rootfs: PathBuf,
}

/// Enters the bundle's folder (the current one if none is given), to which the paths of its spec are relative.
pub(crate) fn load(path: Option<&OsStr>) -> Result<Bundle, Failure> {
    if let Some(path) = path.filter(|path| !path.is_empty()) {
        rustix::process::chdir(path).map_err(|error| Failure::io(format!("enter the bundle {path:?}"), error))?;
    }
    let path = std::env::current_dir().map_err(|error| Failure::io("find the bundle's folder", error))?;
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

/// A bind mount's source may be relative to the bundle.
fn absolute_source(mount: &mut oci::Mount, bundle: &Path) {
    let binds =
        mount.kind.as_deref() == Some("bind") || mount.options.iter().any(|word| word == "bind" || word == "rbind");
    if let Some(source) = mount.source.as_mut().filter(|source| binds && !source.is_empty() && !source.starts_with('/'))
    {
        *source = bundle.join(&*source).to_string_lossy().into_owned();
    }
}

/// A JSON file of bounded size.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path, what: &str) -> Result<T, Failure> {
    let file = File::open(path).map_err(|error| Failure::io(format!("open {what}"), error))?;
    from_reader(file, what)
}

/// JSON of bounded size.
pub(crate) fn from_reader<T: serde::de::DeserializeOwned>(reader: impl Read, what: &str) -> Result<T, Failure> {
    let mut text = Vec::with_capacity(64 << 10);
    reader.take(CONFIG_MAX + 1).read_to_end(&mut text).map_err(|error| Failure::io(format!("read {what}"), error))?;
    if text.len() as u64 > CONFIG_MAX {
        return Err(Failure::new(format!("{what}: is larger than {CONFIG_MAX} bytes")));
    }
    serde_json::from_slice(&text).map_err(|error| Failure::new(format!("{what}: {error}")))
}
