//! Definitions on disk, and in memory with the attachments in progress that use them.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    definition::{NetworkDefinition, is_hex_id},
    request::is_name,
};
use crate::Error;

/// Largest file of a definition, in bytes. Requests are bounded below that.
const FILE_MAX: u64 = 1 << 20;
/// Maximum number of networks.
const NETWORKS_MAX: usize = 1024;

/// The definitions of a node. A file is `ID.json`; it is complete and synced before a caller learns of the network.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    all: Mutex<BTreeMap<String, Entry>>,
    /// Held while a network is created or removed.
    pub(crate) changes: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct Entry {
    definition: Arc<NetworkDefinition>,
    /// Number of attachments in progress.
    uses: usize,
    /// Whether it is being removed, so that no pod can be attached anymore.
    is_leaving: bool,
}

/// Keeps a network from being removed.
#[derive(Debug)]
pub(crate) struct InUse {
    store: Arc<Store>,
    pub(crate) definition: Arc<NetworkDefinition>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(entry) = self.store.lock().get_mut(&self.definition.id) {
            entry.uses = entry.uses.saturating_sub(1);
        }
    }
}

impl Store {
    /// Reads the definitions. The directory is created with the first network. A file that is not a definition is
    /// logged, and its network does not exist.
    pub(crate) fn open(directory: &Path) -> Result<Self, Error> {
        let mut all = BTreeMap::new();
        let entries = match fs::read_dir(directory) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            entries => entries.map_err(|e| Error::path("read", directory, e))?.flatten().collect(),
        };
        for path in entries.into_iter().map(|entry| entry.path()) {
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("json") => {}
                // A daemon was killed before the network was created. If the removal fails, the file is harmless.
                Some("new") => {
                    let _ = fs::remove_file(&path);
                    continue;
                }
                _ => continue,
            }
            match read(&path) {
                Ok(definition) => {
                    let definition = Arc::new(definition);
                    all.insert(definition.id.clone(), Entry { definition, uses: 0, is_leaving: false });
                }
                Err(reason) => {
                    tracing::warn!(file = %path.display(), reason, "the definition of a network cannot be read");
                }
            }
        }
        Ok(Self { directory: directory.to_owned(), all: Mutex::new(all), changes: Arc::default() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all networks by name.
    pub(crate) fn list(&self) -> Vec<Arc<NetworkDefinition>> {
        let all = self.lock();
        let mut list: Vec<_> = all.values().map(|entry| Arc::clone(&entry.definition)).collect();
        drop(all);
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }

    /// Returns the networks that are not being removed.
    pub(crate) fn staying(&self) -> Vec<Arc<NetworkDefinition>> {
        self.lock().values().filter(|entry| !entry.is_leaving).map(|entry| Arc::clone(&entry.definition)).collect()
    }

    /// Returns the networks that are being removed.
    pub(crate) fn leaving(&self) -> Vec<Arc<NetworkDefinition>> {
        self.lock().values().filter(|entry| entry.is_leaving).map(|entry| Arc::clone(&entry.definition)).collect()
    }

    /// Returns the network of a name, an id, or an unambiguous beginning of an id.
    pub(crate) fn get(&self, query: &str) -> Result<Arc<NetworkDefinition>, Error> {
        let list = self.list();
        if let Some(named) = list.iter().find(|definition| definition.name == query) {
            return Ok(Arc::clone(named));
        }
        let mut matching = list.iter().filter(|definition| !query.is_empty() && definition.id.starts_with(query));
        match (matching.next(), matching.next()) {
            (Some(only), None) => Ok(Arc::clone(only)),
            _ => Err(Error::NetworkMissing(query.to_owned())),
        }
    }

    /// Finds a network and keeps it from being removed.
    pub(crate) fn enter(self: &Arc<Self>, query: &str) -> Result<InUse, Error> {
        let definition = self.get(query)?;
        let mut all = self.lock();
        let entry = all.get_mut(&definition.id).filter(|entry| !entry.is_leaving);
        let entry = entry.ok_or_else(|| Error::NetworkMissing(query.to_owned()))?;
        entry.uses += 1;
        drop(all);
        Ok(InUse { store: Arc::clone(self), definition })
    }

    /// Prevents further attachments; false if one is in progress.
    pub(crate) fn leave(&self, id: &str) -> bool {
        let mut all = self.lock();
        let Some(entry) = all.get_mut(id) else { return true };
        entry.is_leaving = entry.uses == 0;
        entry.is_leaving
    }

    /// Permits attachments again.
    pub(crate) fn stay(&self, id: &str) {
        if let Some(entry) = self.lock().get_mut(id) {
            entry.is_leaving = false;
        }
    }

    /// Writes a new definition. Blocks until it is on disk.
    pub(crate) fn add(&self, definition: NetworkDefinition) -> Result<Arc<NetworkDefinition>, Error> {
        if self.lock().len() >= NETWORKS_MAX {
            let reason =
                format!("{NETWORKS_MAX} networks exist; remove some that are not in use: pinion network prune");
            return Err(Error::config(format!("create network {}", definition.name), reason));
        }
        let path = self.path(&definition.id);
        let text = serde_json::to_vec_pretty(&definition).map_err(|e| Error::path("encode", &path, e))?;
        fs::create_dir_all(&self.directory).map_err(|e| Error::path("create", &self.directory, e))?;
        let temporary = path.with_extension("new");
        let write = || {
            let mut file = File::create(&temporary)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            self.sync()
        };
        write().map_err(|e| {
            // The error of the write is the one to return. A network that was not created must not exist after a restart.
            let _ = fs::remove_file(&temporary);
            let _ = fs::remove_file(&path);
            Error::path("write", &path, e)
        })?;
        let definition = Arc::new(definition);
        let entry = Entry { definition: Arc::clone(&definition), uses: 0, is_leaving: false };
        self.lock().insert(definition.id.clone(), entry);
        Ok(definition)
    }

    /// Deletes a definition. Blocks until this is on disk.
    pub(crate) fn delete(&self, id: &str) -> Result<(), Error> {
        let path = self.path(id);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::path("remove", &path, e)),
            _ => {}
        }
        self.lock().remove(id);
        self.sync().map_err(|e| Error::path("sync", &self.directory, e))
    }

    fn path(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }
}

fn read(path: &Path) -> Result<NetworkDefinition, String> {
    let length = fs::metadata(path).map_err(|e| e.to_string())?.len();
    if length > FILE_MAX {
        return Err("longer than 1 MiB".into());
    }
    let text = fs::read(path).map_err(|e| e.to_string())?;
    let definition: NetworkDefinition = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    let is_named = path.file_stem().is_some_and(|stem| stem == definition.id.as_str());
    if !is_hex_id(&definition.id) || !is_named || !is_name(&definition.name) || definition.subnets.is_empty() {
        return Err("its id, name or subnets are not valid".into());
    }
    definition.parsed_options()?;
    Ok(definition)
}
