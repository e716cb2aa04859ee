//! System call filters: chosen, compiled once, held as one sealed memfd per content.

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

/// Longest profile file.
const LONGEST: u64 = 4 << 20;
/// Most memfds kept; past that they are made anew.
const MOST: usize = 64;

/// See the module.
#[derive(Default)]
pub(crate) struct Filters {
    programs: seccomp::Cache,
    /// Of the default profile by capabilities: what nearly every container has.
    defaults: Mutex<HashMap<Vec<String>, OwnedFd>>,
    files: Mutex<HashMap<Vec<u8>, OwnedFd>>,
}

impl Filters {
    /// The program for these rights; `None`: unconfined.
    pub(crate) fn choose(&self, security: &Security, capabilities: &[String]) -> Result<Option<OwnedFd>, Error> {
        if security.privileged {
            return Ok(None);
        }
        let profile = match &security.seccomp {
            SeccompChoice::Unconfined => return Ok(None),
            SeccompChoice::RuntimeDefault => return self.default(capabilities).map(Some),
            SeccompChoice::Localhost(path) => {
                let told = format!("seccomp profile {}", path.display());
                let text = read(path).map_err(|e| Error::invalid(format!("{told}: {e}")))?;
                oci::from_json(&text).map_err(|e| Error::invalid(format!("{told}: {e}")))?
            }
        };
        self.compile(&profile).map(Some)
    }

    fn default(&self, capabilities: &[String]) -> Result<OwnedFd, Error> {
        let mut defaults = self.defaults.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = defaults.get(capabilities) {
            return file.try_clone().map_err(failed("duplicate a memfd"));
        }
        let file = self.compile(&seccomp::default_profile(capabilities))?;
        if defaults.len() >= MOST {
            defaults.clear();
        }
        let duplicate = file.try_clone().map_err(failed("duplicate a memfd"))?;
        defaults.insert(capabilities.to_vec(), file);
        Ok(duplicate)
    }

    fn compile(&self, profile: &oci::Seccomp) -> Result<OwnedFd, Error> {
        let program = self.programs.compile(profile).map_err(|e| Error::invalid(format!("seccomp profile: {e}")))?;
        self.file(program.to_bytes())
    }

    fn file(&self, bytes: Vec<u8>) -> Result<OwnedFd, Error> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if files.len() >= MOST && !files.contains_key(&bytes) {
            files.clear();
        }
        let file = match files.entry(bytes) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(free) => {
                let file = memfd(free.key()).map_err(failed("make a memfd for a seccomp program"))?;
                free.insert(file)
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
    file.take(LONGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(std::io::Error::other(format!("longer than {LONGEST} bytes")));
    }
    Ok(text)
}

fn memfd(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let memfd = rustix::fs::memfd_create(c"pinion-seccomp", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = fs::File::from(memfd);
    std::io::Write::write_all(&mut file, bytes)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    // Whoever reads it by read(2) begins at the start.
    std::io::Seek::rewind(&mut file)?;
    Ok(file.into())
}
