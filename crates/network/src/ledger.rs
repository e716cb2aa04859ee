//! What is attached, or about to be, or about to go: on record before the kernel knows of it.
//!
//! ```text
//! (none) ── write ──→ <sandbox>.json ── leave ──→ <sandbox>.leaving ── remove ──→ (none)
//! ```
//! A record is written beside and renamed, without a sync: what it tells of is gone after a reboot, too.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{Error, PodRef, PortMapping, nft::Mapping};

/// A pod's attachment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) pod: PodRef,
    pub(crate) ns_path: PathBuf,
    pub(crate) interface: String,
    /// The CNI list it was attached by; none: the built-in network.
    pub(crate) list: Option<serde_json::Value>,
    /// The pod's addresses as soon as they are known.
    pub(crate) addresses: Vec<IpAddr>,
    /// Those ports that our firewall maps.
    pub(crate) ports: Vec<PortMapping>,
    /// All ports, for plugins.
    pub(crate) all_ports: Vec<PortMapping>,
    /// The result, for plugins' DEL and CHECK.
    pub(crate) result: Option<serde_json::Value>,
}

impl Record {
    /// What the firewall is to have for this pod: for each port the first address of each family.
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
}

/// A name found in the ledger.
#[derive(Debug)]
pub(crate) struct Entry {
    /// None when the file is damaged: its sandbox is known by the file's name.
    pub(crate) record: Option<Record>,
}

impl Ledger {
    pub(crate) fn open(directory: &Path) -> Result<Self, Error> {
        fs::create_dir_all(directory).map_err(|e| Error::path("create", directory, e))?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Removes what a crash left beside its name; by the state's one owner.
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

    fn here(&self, sandbox: &str) -> PathBuf {
        self.directory.join(format!("{sandbox}.json"))
    }

    fn going(&self, sandbox: &str) -> PathBuf {
        self.directory.join(format!("{sandbox}.leaving"))
    }

    pub(crate) fn write(&self, record: &Record) -> Result<(), Error> {
        let (beside, path) =
            (self.directory.join(format!(".{}.new", record.pod.sandbox)), self.here(&record.pod.sandbox));
        let text = serde_json::to_vec(record).map_err(|e| Error::path("encode", &path, e))?;
        let write = || {
            fs::write(&beside, text).map_err(|e| Error::path("write", &beside, e))?;
            fs::rename(&beside, &path).map_err(|e| Error::path("rename to", &path, e))
        };
        offload::here(|| {
            write().inspect_err(|_| {
                // What cannot be removed either is removed at the next start.
                let _ = fs::remove_file(&beside);
            })
        })
    }

    pub(crate) fn is_here(&self, sandbox: &str) -> Result<bool, Error> {
        let path = self.here(sandbox);
        path.try_exists().map_err(|e| Error::path("look for", &path, e))
    }

    pub(crate) fn is_leaving(&self, sandbox: &str) -> Result<bool, Error> {
        let path = self.going(sandbox);
        path.try_exists().map_err(|e| Error::path("look for", &path, e))
    }

    /// The record of a sandbox, be it leaving or not. That it is not there is known only if the kernel says so.
    pub(crate) fn get(&self, sandbox: &str) -> Result<Option<Entry>, Error> {
        for path in [self.here(sandbox), self.going(sandbox)] {
            match fs::read(&path) {
                Ok(text) => return Ok(Some(Entry { record: serde_json::from_slice(&text).ok() })),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::path("read", &path, e)),
            }
        }
        Ok(None)
    }

    /// The attachment is to be undone; from now on it is, whoever lives.
    pub(crate) fn leave(&self, sandbox: &str) -> Result<(), Error> {
        let path = self.here(sandbox);
        ignore_missing(fs::rename(&path, self.going(sandbox))).map_err(|e| Error::path("rename", &path, e))
    }

    pub(crate) fn remove(&self, sandbox: &str) -> Result<(), Error> {
        for path in [self.here(sandbox), self.going(sandbox)] {
            ignore_missing(fs::remove_file(&path)).map_err(|e| Error::path("remove", &path, e))?;
        }
        Ok(())
    }

    /// Every record.
    pub(crate) fn all(&self) -> Result<Vec<Entry>, Error> {
        self.names()?.into_iter().filter_map(|(sandbox, _)| self.get(&sandbox).transpose()).collect()
    }

    /// The sandbox of every record, and whether it is leaving, without reading any.
    pub(crate) fn names(&self) -> Result<Vec<(String, bool)>, Error> {
        let fail = |e| Error::path("read", &self.directory, e);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(fail)? {
            let name = entry.map_err(fail)?.file_name();
            let name = name.to_string_lossy();
            // What a crash left beside its name was never true.
            let Some((sandbox, kind)) = name.rsplit_once('.').filter(|_| !name.starts_with('.')) else { continue };
            if !matches!(kind, "json" | "leaving") {
                continue;
            }
            names.push((sandbox.to_owned(), kind == "leaving"));
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
    fn what_cannot_be_read_is_not_taken_for_absent() {
        let directory = tempfile::tempdir().expect("directory");
        let ledger = Ledger::open(directory.path()).expect("open");
        assert!(ledger.get("pod").expect("known").is_none());
        fs::write(directory.path().join("pod.leaving"), "{").expect("write");
        assert!(ledger.get("pod").expect("known").expect("damaged").record.is_none());
        // The kernel refuses to read it, as it does without memory.
        fs::create_dir(directory.path().join("pod.json")).expect("mkdir");
        ledger.get("pod").expect_err("unknown");
        ledger.all().expect_err("unknown");
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
    }
}
