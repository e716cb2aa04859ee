//! Seccomp filters: selected, compiled once, and kept as one sealed memfd per content.

use std::{
    collections::HashMap,
    fs,
    io::Read,
    os::unix::fs::OpenOptionsExt,
    sync::{Mutex, PoisonError},
};

use rustix::{
    fd::OwnedFd,
    fs::{MemfdFlags, OFlags, SealFlags},
};

use crate::{Error, SeccompChoice, Security, error::failed};

/// Maximum size of a profile file, in bytes.
const PROFILE_MAX: u64 = 4 << 20;
/// Number of memfds that are kept; beyond that the cache is emptied.
const MEMFDS_MAX: usize = 64;

/// Cache of compiled seccomp filters.
#[derive(Default)]
pub(crate) struct Filters {
    programs: seccomp::Cache,
    /// Programs of the default profile, by capabilities: nearly every container uses one of these.
    defaults: Mutex<HashMap<Vec<String>, OwnedFd>>,
    files: Mutex<HashMap<Vec<u8>, OwnedFd>>,
}

impl Filters {
    /// Returns the program for these security settings; `None` if the container is unconfined.
    pub(crate) fn choose(&self, security: &Security, capabilities: &[String]) -> Result<Option<OwnedFd>, Error> {
        match &security.seccomp {
            SeccompChoice::RuntimeDefault if !security.privileged => self.default(capabilities).map(Some),
            _ => self.profile(security, capabilities)?.map(|profile| self.compile(&profile)).transpose(),
        }
    }

    /// Returns the profile for these security settings; `None` if the container is unconfined.
    pub(crate) fn profile(&self, security: &Security, capabilities: &[String]) -> Result<Option<oci::Seccomp>, Error> {
        if security.privileged {
            return Ok(None);
        }
        match &security.seccomp {
            SeccompChoice::Unconfined => Ok(None),
            SeccompChoice::RuntimeDefault => Ok(Some(seccomp::default_profile(capabilities))),
            SeccompChoice::Localhost(path) => {
                let operation = format!("seccomp profile {}", path.display());
                let text = read(path).map_err(|e| Error::invalid(format!("{operation}: {e}")))?;
                oci::from_json(&text).map(Some).map_err(|e| Error::invalid(format!("{operation}: {e}")))
            }
        }
    }

    fn default(&self, capabilities: &[String]) -> Result<OwnedFd, Error> {
        let mut defaults = self.defaults.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = defaults.get(capabilities) {
            return file.try_clone().map_err(failed("duplicate a memfd"));
        }
        let file = self.compile(&seccomp::default_profile(capabilities))?;
        if defaults.len() >= MEMFDS_MAX {
            defaults.clear();
        }
        let duplicate = file.try_clone().map_err(failed("duplicate a memfd"))?;
        defaults.insert(capabilities.to_vec(), file);
        Ok(duplicate)
    }

    /// Compiles a profile, unless one of equal content is compiled already.
    pub(crate) fn compile(&self, profile: &oci::Seccomp) -> Result<OwnedFd, Error> {
        let program = self.programs.compile(profile).map_err(|e| Error::invalid(format!("seccomp profile: {e}")))?;
        self.file(program.to_bytes())
    }

    fn file(&self, bytes: Vec<u8>) -> Result<OwnedFd, Error> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if files.len() >= MEMFDS_MAX && !files.contains_key(&bytes) {
            files.clear();
        }
        let file = match files.entry(bytes) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let file = memfd(entry.key()).map_err(failed("create a memfd for a seccomp program"))?;
                entry.insert(file)
            }
        };
        file.try_clone().map_err(failed("duplicate a memfd"))
    }
}

fn read(path: &std::path::Path) -> std::io::Result<Vec<u8>> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut text = Vec::new();
    file.take(PROFILE_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > PROFILE_MAX {
        return Err(std::io::Error::other(format!("longer than {PROFILE_MAX} bytes")));
    }
    Ok(text)
}

fn memfd(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let memfd = rustix::fs::memfd_create(c"pinion-seccomp", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = fs::File::from(memfd);
    std::io::Write::write_all(&mut file, bytes)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    // A reader that uses read(2) must start at the beginning.
    std::io::Seek::rewind(&mut file)?;
    Ok(file.into())
}
