//! Records of attachments. A record exists before the kernel objects of its attachment do.
//!
//! ```text
//! (none) ── write ──→ <key>.json ── mark_leaving ──→ <key>.leaving ── remove ──→ (none)
//! ```
//! A pod has a record for each of its attachments ([`AttachmentKey`]): each is undone on its own.
//! A record is written to a temporary file and renamed, without a sync: the attachment does not survive a reboot
//! either.

use std::{
    collections::BTreeSet,
    fs, io,
    net::IpAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use crate::{
    Error, NetworkSelection, PodRef, PortMapping, attachment_key::AttachmentKey, named::NAME_KEY, nft::Mapping,
};

/// The record of an attachment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) pod: PodRef,
    pub(crate) ns_path: PathBuf,
    pub(crate) interface: String,
    /// CNI configuration list that was used to attach the pod; `None` for the built-in network.
    pub(crate) list: Option<serde_json::Value>,
    /// Addresses of the pod, empty until they are known.
    pub(crate) addresses: Vec<IpAddr>,
    /// Ports that our firewall maps.
    pub(crate) ports: Vec<PortMapping>,
    /// All ports, passed to plugins.
    pub(crate) all_ports: Vec<PortMapping>,
    /// Whether built-in types ran in the daemon's process. Otherwise their programs attached the pod.
    #[serde(default)]
    pub(crate) in_process: bool,
    /// CNI result, passed to plugins' `DEL` and `CHECK`.
    pub(crate) result: Option<serde_json::Value>,
    /// Position among the pod's attachments; zero for the primary one.
    #[serde(default)]
    pub(crate) position: usize,
    /// What the pod requested of the network.
    #[serde(default)]
    pub(crate) selection: Option<NetworkSelection>,
    /// Positions in the list of those plugins whose `DEL` has succeeded. They are not run again.
    #[serde(default)]
    pub(crate) deleted: BTreeSet<usize>,
}

impl Record {
    pub(crate) fn key(&self) -> AttachmentKey {
        AttachmentKey::new(&self.pod.sandbox, &self.interface)
    }

    /// Returns the name of the network; `None` for the built-in one.
    pub(crate) fn network(&self) -> Option<&str> {
        self.list.as_ref()?.get("name")?.as_str()
    }

    /// Reports whether it is an attachment to a network that people created.
    pub(crate) fn is_named(&self) -> bool {
        self.list.as_ref().is_some_and(|list| list.get(NAME_KEY).is_some())
    }

    /// Returns the mappings of this pod for the firewall: for each port the first address of each family.
    pub(crate) fn mappings(&self) -> Vec<Mapping> {
        let mut mappings = Vec::new();
        for port in self.ports.iter().filter(|port| port.host_port != 0) {
            let host_ip = port.host_ip.filter(|ip| !ip.is_unspecified());
            for ipv4 in [true, false] {
                if port.host_ip.is_some_and(|ip| ip.is_ipv4() != ipv4) {
                    continue;
                }
                let Some(address) = self.addresses.iter().find(|ip| ip.is_ipv4() == ipv4) else { continue };
                mappings.push(Mapping {
                    protocol: port.protocol,
                    host_ip,
                    host_port: port.host_port,
                    address: *address,
                    port: port.container_port,
                });
            }
        }
        mappings
    }
}

/// The directory of records.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    directory: PathBuf,
    /// The keys of all records, so that those of a sandbox are found without reading the directory. A key without a file is
    /// ignored.
    keys: Arc<Mutex<BTreeSet<AttachmentKey>>>,
}

/// A directory entry of the ledger.
#[derive(Debug)]
pub(crate) struct Entry {
    /// `None` if the file is damaged; the attachment is then known only by the file's name.
    pub(crate) record: Option<Record>,
}

impl Ledger {
    pub(crate) fn open(directory: &Path) -> Result<Self, Error> {
        fs::create_dir_all(directory).map_err(|e| Error::path("create", directory, e))?;
        let ledger = Self { directory: directory.to_owned(), keys: Arc::default() };
        let keys = ledger.names()?.into_iter().map(|(key, _)| key).collect();
        *ledger.keys() = keys;
        Ok(ledger)
    }

    fn keys(&self) -> MutexGuard<'_, BTreeSet<AttachmentKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes temporary files that a crash left behind. Only the owner of the state directory may call this.
    pub(crate) fn sweep(&self) -> Result<(), Error> {
        let fail = |e| Error::path("sweep", &self.directory, e);
        for entry in fs::read_dir(&self.directory).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            if entry.file_name().to_string_lossy().starts_with('.') {
                ignore_missing(fs::remove_file(entry.path())).map_err(fail)?;
            }
        }
        Ok(())
    }

    fn record_path(&self, key: &AttachmentKey) -> PathBuf {
        self.directory.join(format!("{key}.json"))
    }

    fn leaving_path(&self, key: &AttachmentKey) -> PathBuf {
        self.directory.join(format!("{key}.leaving"))
    }

    pub(crate) fn write(&self, record: &Record) -> Result<(), Error> {
        self.replace(record, &self.record_path(&record.key()))
    }

    /// Replaces the record of an attachment that is leaving.
    pub(crate) fn write_leaving(&self, record: &Record) -> Result<(), Error> {
        self.replace(record, &self.leaving_path(&record.key()))
    }

    fn replace(&self, record: &Record, path: &Path) -> Result<(), Error> {
        let temporary = self.directory.join(format!(".{}.new", record.key()));
        let text = serde_json::to_vec(record).map_err(|e| Error::path("encode", path, e))?;
        // What pods request and plugins return may be nested more deeply than the decoder permits. A record that cannot be
        // read would leave the plugins' work behind.
        serde_json::from_slice::<Record>(&text).map_err(|e| Error::path("encode", path, e))?;
        let write = || {
            fs::write(&temporary, text).map_err(|e| Error::path("write", &temporary, e))?;
            fs::rename(&temporary, path).map_err(|e| Error::path("rename to", path, e))
        };
        // Before the file exists: a crash of this thread leaves no record without a key.
        self.keys().insert(record.key());
        let written = offload::in_place(|| {
            write().inspect_err(|_| {
                // If the removal fails too, the file is removed at the next start.
                let _ = fs::remove_file(&temporary);
            })
        });
        self.update_key(&record.key());
        written
    }

    /// Makes the set of keys agree with the files after a change. The removal of a record may end while another record of
    /// the same key is written: the lock orders the looks at the files, and the last one finds what both have left.
    fn update_key(&self, key: &AttachmentKey) {
        let mut keys = self.keys();
        // What cannot be determined keeps its key.
        match self.is_leaving(key) {
            Ok(None) => keys.remove(key),
            _ => keys.insert(key.clone()),
        };
    }

    /// Returns the attachments of a sandbox and whether each is leaving, the primary one first.
    pub(crate) fn of_sandbox(&self, sandbox: &str) -> Result<Vec<(AttachmentKey, bool)>, Error> {
        let first = AttachmentKey::primary(sandbox);
        let keys: Vec<AttachmentKey> = {
            let all = self.keys();
            let with_prefix = all.range(&first..).take_while(|key| key.as_str().starts_with(sandbox));
            with_prefix.filter(|key| key.sandbox() == sandbox).cloned().collect()
        };
        let found = keys.into_iter().map(|key| Ok(self.is_leaving(&key)?.map(|is_leaving| (key, is_leaving))));
        found.filter_map(Result::transpose).collect()
    }

    /// Returns whether an attachment is leaving; `None` for one without a record.
    fn is_leaving(&self, key: &AttachmentKey) -> Result<Option<bool>, Error> {
        for (path, is_leaving) in [(self.record_path(key), false), (self.leaving_path(key), true)] {
            if path.try_exists().map_err(|e| Error::path("find", &path, e))? {
                return Ok(Some(is_leaving));
            }
        }
        Ok(None)
    }

    /// Returns the record of an attachment, whether it is leaving or not. Returns `None` only if the kernel reports that
    /// the file does not exist; any other failure is an error.
    pub(crate) fn get(&self, key: &AttachmentKey) -> Result<Option<Entry>, Error> {
        for path in [self.record_path(key), self.leaving_path(key)] {
            match fs::read(&path) {
                Ok(text) => return Ok(Some(Entry { record: serde_json::from_slice(&text).ok() })),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::path("read", &path, e)),
            }
        }
        Ok(None)
    }

    /// Marks the attachment as leaving: from now on it is undone even if the sandbox is running.
    pub(crate) fn mark_leaving(&self, key: &AttachmentKey) -> Result<(), Error> {
        let path = self.record_path(key);
        ignore_missing(fs::rename(&path, self.leaving_path(key))).map_err(|e| Error::path("rename", &path, e))
    }

    /// Returns how long ago an attachment was marked as leaving; `None` if it is not, or if that time is not known.
    /// The time begins again when the record is replaced.
    pub(crate) fn leaving_for(&self, key: &AttachmentKey) -> Option<Duration> {
        // The mark is a rename, which sets the time of the last change of the inode, and only the first one has an effect.
        let file = fs::metadata(self.leaving_path(key)).ok()?;
        let changed = Duration::new(u64::try_from(file.ctime()).ok()?, u32::try_from(file.ctime_nsec()).ok()?);
        SystemTime::now().duration_since(UNIX_EPOCH.checked_add(changed)?).ok()
    }

    pub(crate) fn remove(&self, key: &AttachmentKey) -> Result<(), Error> {
        for path in [self.record_path(key), self.leaving_path(key)] {
            ignore_missing(fs::remove_file(&path)).map_err(|e| Error::path("remove", &path, e))?;
        }
        self.update_key(key);
        Ok(())
    }

    /// Returns every record.
    pub(crate) fn all(&self) -> Result<Vec<Entry>, Error> {
        self.names()?.into_iter().filter_map(|(key, _)| self.get(&key).transpose()).collect()
    }

    /// Returns the key of every record and whether it is leaving, without reading the files.
    pub(crate) fn names(&self) -> Result<Vec<(AttachmentKey, bool)>, Error> {
        let fail = |e| Error::path("read", &self.directory, e);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(fail)? {
            let name = entry.map_err(fail)?.file_name();
            let name = name.to_string_lossy();
            // Temporary files of a crash never became records.
            let Some((key, kind)) = name.rsplit_once('.').filter(|_| !name.starts_with('.')) else { continue };
            if let (Ok(key), "json" | "leaving") = (AttachmentKey::parse(key), kind) {
                names.push((key, kind == "leaving"));
            }
        }
        Ok(names)
    }
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_record_is_not_treated_as_missing() {
        let directory = tempfile::tempdir().expect("directory");
        let ledger = Ledger::open(directory.path()).expect("open");
        let pod = AttachmentKey::primary("pod");
        assert!(ledger.get(&pod).expect("known").is_none());
        fs::write(directory.path().join("pod.leaving"), "{").expect("write");
        assert!(ledger.get(&pod).expect("known").expect("damaged").record.is_none());
        // Reading a directory as a file fails, as reading a file does when the kernel is out of memory.
        fs::create_dir(directory.path().join("pod.json")).expect("mkdir");
        ledger.get(&pod).expect_err("unknown");
        ledger.all().expect_err("unknown");
    }

    #[test]
    fn the_attachments_of_a_sandbox_are_found_by_its_name() {
        let directory = tempfile::tempdir().expect("directory");
        for name in ["pod.leaving", "pod@net1.json", "pod1.json", "pod1@net1.json", "podx.json", ".pod@net3.new"] {
            fs::write(directory.path().join(name), "{}").expect("write");
        }
        let ledger = Ledger::open(directory.path()).expect("open");
        let attachments = |sandbox: &str| -> Vec<(String, bool)> {
            let all = ledger.of_sandbox(sandbox).expect("attachments");
            all.into_iter().map(|(key, is_leaving)| (key.to_string(), is_leaving)).collect()
        };
        assert_eq!(attachments("pod"), [("pod".to_owned(), true), ("pod@net1".to_owned(), false)]);
        assert_eq!(attachments("po"), []);
        ledger.mark_leaving(&AttachmentKey::new("pod1", "net1")).expect("marked");
        assert_eq!(attachments("pod1"), [("pod1".to_owned(), false), ("pod1@net1".to_owned(), true)]);
        ledger.remove(&AttachmentKey::primary("pod1")).expect("removed");
        assert_eq!(attachments("pod1"), [("pod1@net1".to_owned(), true)]);
        // Clones have the same keys.
        ledger.clone().remove(&AttachmentKey::new("pod1", "net1")).expect("removed");
        assert_eq!((attachments("pod1"), ledger.keys().len()), (Vec::new(), 3));
    }

    #[test]
    fn a_record_that_cannot_be_written_leaves_nothing() {
        let directory = tempfile::tempdir().expect("directory");
        let ledger = Ledger::open(directory.path()).expect("open");
        fs::create_dir(directory.path().join("pod.json")).expect("mkdir");
        let record = serde_json::json!({
            "pod": {"sandbox": "pod", "namespace": "", "name": "", "uid": ""}, "ns_path": "/run/netns/pod", "interface": "eth0",
            "list": null, "addresses": [], "ports": [], "all_ports": [], "result": null,
        });
        let record: Record = serde_json::from_value(record).expect("a record");
        ledger.write(&record).expect_err("a directory has its name");
        let names: Vec<_> = fs::read_dir(directory.path()).expect("list").flatten().map(|e| e.file_name()).collect();
        assert_eq!(names, ["pod.json"]);
        // The directory has the name of a record.
        fs::remove_dir(directory.path().join("pod.json")).expect("rmdir");
        ledger.remove(&record.key()).expect("removed");
        assert!(ledger.keys().is_empty());
    }
}
