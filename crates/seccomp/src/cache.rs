use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{Error, Program, compile};

/// Most profiles kept. A node has a handful; past that the cache starts anew, which costs a compile each.
const ENTRIES_MAX: usize = 64;

/// Compiled programs by content, so that a profile is compiled once per process.
#[derive(Debug, Default)]
pub struct Cache {
    programs: Mutex<HashMap<oci::Seccomp, Arc<Program>>>,
}

impl Cache {
    /// The compiled program of this profile.
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
