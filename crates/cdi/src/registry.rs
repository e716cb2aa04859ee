//! All files of all directories, and who wins where two describe one device.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    Edits, Error, Name,
    file::{self, Mark},
    spec::Spec,
};

/// Most files of one directory.
const MOST: usize = 4096;

/// See the module and the crate.
#[derive(Debug)]
pub struct Registry(Mutex<Known>);

/// A file as it was read, by its path.
#[derive(Debug)]
struct Read {
    mark: Option<Mark>,
    spec: Result<Arc<Spec>, String>,
}

#[derive(Debug, Default)]
struct Known {
    /// The one with the highest priority last.
    places: Vec<PathBuf>,
    files: HashMap<PathBuf, Read>,
    /// What could not be listed.
    directories: BTreeMap<PathBuf, String>,
    devices: BTreeMap<Name, Found>,
}

#[derive(Debug, Clone)]
enum Found {
    Once { file: PathBuf, spec: Arc<Spec>, at: usize, priority: usize },
    Twice { files: Vec<PathBuf>, priority: usize },
}

impl Registry {
    /// Of these directories, the one with the highest priority last. None of them has to be there. Reads nothing yet.
    pub fn new(directories: Vec<PathBuf>) -> Self {
        Self(Mutex::new(Known { places: directories, ..Known::default() }))
    }

    /// Other directories from now on.
    pub fn set_directories(&self, directories: Vec<PathBuf>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).places = directories;
    }

    /// By the files as they are now.
    fn now(&self) -> MutexGuard<'_, Known> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.refresh();
        known
    }

    /// What containers with these devices get, by the files as they are now. Blocks.
    ///
    /// # Errors
    /// The first device that is not known or in conflict. A broken file is named only where the device may have been in
    /// it.
    pub fn resolve(&self, names: &[Name]) -> Result<Edits, Error> {
        let known = self.now();
        let mut edits = Edits::default();
        let mut files: BTreeSet<&Path> = BTreeSet::new();
        for name in names {
            match known.devices.get(name) {
                Some(Found::Once { file, spec, at, .. }) => {
                    if files.insert(file) {
                        edits.add(&spec.container_edits);
                    }
                    edits.add(&spec.devices[*at].container_edits);
                }
                Some(Found::Twice { files, .. }) => {
                    let files = files.iter().map(|file| file.display().to_string()).collect();
                    return Err(Error::Conflict { name: name.to_string(), files });
                }
                None => return Err(Error::Unknown { name: name.to_string(), why: known.why(name) }),
            }
        }
        Ok(edits)
    }

    /// Full names of all devices that can be had now.
    pub fn devices(&self) -> Vec<String> {
        let known = self.now();
        let once = known.devices.iter().filter(|(_, found)| matches!(found, Found::Once { .. }));
        once.map(|(name, _)| name.to_string()).collect()
    }

    /// Files and directories that cannot be read, and why; devices in conflict.
    pub fn problems(&self) -> BTreeMap<String, String> {
        let known = self.now();
        let mut problems = BTreeMap::new();
        for (directory, why) in &known.directories {
            problems.insert(directory.display().to_string(), why.clone());
        }
        for (path, file) in &known.files {
            if let Err(why) = &file.spec {
                problems.insert(path.display().to_string(), why.clone());
            }
        }
        for (name, found) in &known.devices {
            if let Found::Twice { files, .. } = found {
                let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
                problems.insert(name.to_string(), format!("described twice, in {}", files.join(" and ")));
            }
        }
        problems
    }
}

impl Known {
    fn why(&self, name: &Name) -> String {
        let directories: Vec<String> = self.places.iter().map(|directory| directory.display().to_string()).collect();
        let mut why = match self.devices.keys().find(|other| other.kind() == name.kind()) {
            Some(_) => format!("of {} there are others in {}", name.kind(), directories.join(", ")),
            None => format!("no file in {} is of kind {}", directories.join(", "), name.kind()),
        };
        let mut broken: Vec<_> =
            self.files.iter().filter_map(|(path, file)| Some((path, file.spec.as_ref().err()?))).collect();
        broken.sort();
        if let Some((path, reason)) = broken.first() {
            why += &format!("; {} cannot be read: {reason}", path.display());
        }
        why
    }

    /// Reads what changed, and decides again who has what if anything did.
    fn refresh(&mut self) {
        let mut there: Vec<(PathBuf, usize)> = Vec::new();
        let mut directories = BTreeMap::new();
        for (priority, directory) in self.places.iter().enumerate() {
            match list(directory) {
                Ok(files) => there.extend(files.into_iter().map(|file| (file, priority))),
                Err(why) => drop(directories.insert(directory.clone(), why)),
            }
        }
        let before = self.files.len();
        self.files.retain(|path, _| there.iter().any(|(file, _)| file == path));
        let mut changed = self.files.len() != before;
        self.directories = directories;
        for (path, _) in &there {
            // Looked at before it is read: what changes in between is seen by the next look.
            let mark = Mark::of(path);
            if mark.is_some() && self.files.get(path).is_some_and(|read| read.mark == mark) {
                continue;
            }
            changed = true;
            self.files.insert(path.clone(), Read { mark, spec: file::read(path).map(Arc::new) });
        }
        if changed {
            self.devices = decide(&self.files, &there);
        }
    }
}

/// `.json` and `.yaml`, sorted.
fn list(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| e.to_string())?.path();
        let known = path.extension().is_some_and(|extension| extension == "json" || extension == "yaml");
        if known && !path.is_dir() {
            files.push(path);
        }
        if files.len() > MOST {
            return Err(format!("it has more than {MOST} files"));
        }
    }
    files.sort();
    Ok(files)
}

/// A later directory hides an earlier one; two files of one directory hide each other.
fn decide(files: &HashMap<PathBuf, Read>, there: &[(PathBuf, usize)]) -> BTreeMap<Name, Found> {
    let mut devices: BTreeMap<Name, Found> = BTreeMap::new();
    for (path, priority) in there {
        let Some(Ok(spec)) = files.get(path).map(|read| &read.spec) else { continue };
        for (at, device) in spec.devices.iter().enumerate() {
            let name = Name::of(&spec.kind, &device.name);
            let once = Found::Once { file: path.clone(), spec: Arc::clone(spec), at, priority: *priority };
            let found = match devices.remove(&name) {
                Some(Found::Once { file, priority: other, .. }) if other == *priority => {
                    Found::Twice { files: vec![file, path.clone()], priority: *priority }
                }
                Some(Found::Twice { mut files, priority: other }) if other == *priority => {
                    files.push(path.clone());
                    Found::Twice { files, priority: other }
                }
                _ => once,
            };
            devices.insert(name, found);
        }
    }
    devices
}

#[cfg(test)]
mod tests;
