use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{Error, Program, compile};

/// The maximum number of cached profiles. A node uses a few; when the limit is reached, the cache is cleared.
const ENTRIES_MAX: usize = 64;

/// A cache of compiled programs by the contents of their profiles, so that a process compiles a profile only once.
#[derive(Debug, Default)]
pub struct Cache {
    programs: Mutex<HashMap<oci::Seccomp, Arc<Program>>>,
}

impl Cache {
    /// Returns the compiled program of a profile.
    pub fn compile(&self, profile: &oci::Seccomp) -> Result<Arc<Program>, Error> {
        let lock = || self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = lock().get(profile) {
            return Ok(Arc::clone(program));
        }
        let program = Arc::new(compile(profile)?);
        let mut programs = lock();
        if programs.len() >= ENTRIES_MAX {
            programs.clear();
        }
        Ok(Arc::clone(programs.entry(profile.clone()).or_insert(program)))
    }
}
