//! Reads the files of all directories, and selects the definition of each device.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    Edits, Error, Name,
    file::{self, FileVersion},
    spec::Spec,
};

/// The maximum number of files of one directory.
const FILES_MAX: usize = 4096;

/// The devices that the specification files of some directories define.
#[derive(Debug)]
pub struct Registry(Mutex<Cache>);

/// A cached file.
#[derive(Debug)]
struct CachedFile {
    version: Option<FileVersion>,
    spec: Result<Arc<Spec>, String>,
}

/// The contents of the directories as of the last refresh.
#[derive(Debug, Default)]
struct Cache {
    /// The directories, from the lowest to the highest priority.
    directories: Vec<PathBuf>,
    files: HashMap<PathBuf, CachedFile>,
    /// Directories that could not be listed, with the error.
    unreadable: BTreeMap<PathBuf, String>,
    devices: BTreeMap<Name, Device>,
}

/// The definitions of a device.
#[derive(Debug, Clone)]
enum Device {
    Unique { file: PathBuf, spec: Arc<Spec>, at: usize, priority: usize },
    Conflict { files: Vec<PathBuf>, priority: usize },
}

impl Registry {
    /// Creates a registry of these directories, from the lowest to the highest priority. Directories need not exist. No
    /// file is read yet.
    pub fn new(directories: Vec<PathBuf>) -> Self {
        Self(Mutex::new(Cache { directories, ..Cache::default() }))
    }

    /// Replaces the directories.
    pub fn set_directories(&self, directories: Vec<PathBuf>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).directories = directories;
    }

    /// Locks the cache and reads files that have changed.
    fn refreshed(&self) -> MutexGuard<'_, Cache> {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.refresh();
        cache
    }

    /// Returns the edits for a container with these devices, from the current files. Blocks.
    ///
    /// # Errors
    /// The first device that is not known or is in conflict. For an unknown device an invalid file is named, too, as it
    /// may define the device.
    pub fn resolve(&self, names: &[Name]) -> Result<Edits, Error> {
        let cache = self.refreshed();
        let mut edits = Edits::default();
        let mut files: BTreeSet<&Path> = BTreeSet::new();
        for name in names {
            match cache.devices.get(name) {
                Some(Device::Unique { file, spec, at, .. }) => {
                    if files.insert(file) {
                        edits.add(&spec.container_edits);
                    }
                    edits.add(&spec.devices[*at].container_edits);
                }
                Some(Device::Conflict { files, .. }) => {
                    let files = files.iter().map(|file| file.display().to_string()).collect();
                    return Err(Error::Conflict { name: name.to_string(), files });
                }
                None => return Err(Error::Unknown { name: name.to_string(), reason: cache.unknown_reason(name) }),
            }
        }
        Ok(edits)
    }

    /// Returns the fully-qualified names of all devices that can be resolved.
    pub fn devices(&self) -> Vec<String> {
        let cache = self.refreshed();
        let unique = cache.devices.iter().filter(|(_, device)| matches!(device, Device::Unique { .. }));
        unique.map(|(name, _)| name.to_string()).collect()
    }

    /// Returns files and directories that cannot be read, and devices in conflict, with the reasons.
    pub fn problems(&self) -> BTreeMap<String, String> {
        let cache = self.refreshed();
        let mut problems = BTreeMap::new();
        for (directory, reason) in &cache.unreadable {
            problems.insert(directory.display().to_string(), reason.clone());
        }
        for (path, file) in &cache.files {
            if let Err(reason) = &file.spec {
                problems.insert(path.display().to_string(), reason.clone());
            }
        }
        for (name, device) in &cache.devices {
            if let Device::Conflict { files, .. } = device {
                let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
                problems.insert(name.to_string(), format!("defined more than once, in {}", files.join(" and ")));
            }
        }
        problems
    }
}

impl Cache {
    /// Explains why a device is not known.
    fn unknown_reason(&self, name: &Name) -> String {
        let directories: Vec<String> =
            self.directories.iter().map(|directory| directory.display().to_string()).collect();
        let directories = directories.join(", ");
        let mut reason = match self.devices.keys().find(|other| other.kind() == name.kind()) {
            Some(_) => format!("files in {directories} define only other devices of kind {}", name.kind()),
            None => format!("no file in {directories} defines devices of kind {}", name.kind()),
        };
        let mut broken: Vec<_> =
            self.files.iter().filter_map(|(path, file)| Some((path, file.spec.as_ref().err()?))).collect();
        broken.sort();
        if let Some((path, error)) = broken.first() {
            reason += &format!("; {} cannot be read: {error}", path.display());
        }
        reason
    }

    /// Reads files that have changed, and if any has, selects the definitions of the devices again.
    fn refresh(&mut self) {
        let mut listed: Vec<(PathBuf, usize)> = Vec::new();
        let mut unreadable = BTreeMap::new();
        for (priority, directory) in self.directories.iter().enumerate() {
            match list(directory) {
                Ok(files) => listed.extend(files.into_iter().map(|file| (file, priority))),
                Err(error) => drop(unreadable.insert(directory.clone(), error)),
            }
        }
        let before = self.files.len();
        self.files.retain(|path, _| listed.iter().any(|(file, _)| file == path));
        let mut changed = self.files.len() != before;
        self.unreadable = unreadable;
        for (path, _) in &listed {
            // The version is read before the file: a change in between is detected by the next refresh.
            let version = FileVersion::of(path);
            if version.is_some() && self.files.get(path).is_some_and(|file| file.version == version) {
                continue;
            }
            changed = true;
            self.files.insert(path.clone(), CachedFile { version, spec: file::read(path).map(Arc::new) });
        }
        if changed {
            self.devices = select_devices(&self.files, &listed);
        }
    }
}

/// Lists the `.json` and `.yaml` files of a directory, sorted.
fn list(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| e.to_string())?.path();
        let is_spec = path.extension().is_some_and(|extension| extension == "json" || extension == "yaml");
        if is_spec && !path.is_dir() {
            files.push(path);
        }
        if files.len() > FILES_MAX {
            return Err(format!("contains more than {FILES_MAX} files"));
        }
    }
    files.sort();
    Ok(files)
}

/// Selects the definition of each device: a later directory overrides an earlier one; two files of one directory are in
/// conflict.
fn select_devices(files: &HashMap<PathBuf, CachedFile>, listed: &[(PathBuf, usize)]) -> BTreeMap<Name, Device> {
    let mut devices: BTreeMap<Name, Device> = BTreeMap::new();
    for (path, priority) in listed {
        let Some(Ok(spec)) = files.get(path).map(|file| &file.spec) else { continue };
        for (at, device) in spec.devices.iter().enumerate() {
            let name = Name::from_parts(&spec.kind, &device.name);
            let unique = Device::Unique { file: path.clone(), spec: Arc::clone(spec), at, priority: *priority };
            let selected = match devices.remove(&name) {
                Some(Device::Unique { file, priority: other, .. }) if other == *priority => {
                    Device::Conflict { files: vec![file, path.clone()], priority: *priority }
                }
                Some(Device::Conflict { mut files, priority: other }) if other == *priority => {
                    files.push(path.clone());
                    Device::Conflict { files, priority: other }
                }
                _ => unique,
            };
            devices.insert(name, selected);
        }
    }
    devices
}

#[cfg(test)]
mod tests;
