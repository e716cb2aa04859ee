//! What could not be made, of late: nothing of it is left but these words, for `why`.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use crate::{Error, clock, container::Container, sandbox::Sandbox, timeline::Stage};

/// No more are kept, of both kinds together.
const MOST: usize = 128;

/// Something that could not be made.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    /// The id it had.
    pub(crate) id: String,
    /// A pod's `namespace/name`, a container's name.
    pub(crate) name: String,
    /// Of a container: its pod.
    pub(crate) sandbox: Option<String>,
    /// When, nanoseconds since the epoch.
    pub(crate) at: u64,
    pub(crate) why: String,
    pub(crate) timeline: Vec<Stage>,
}

/// The last ones.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<VecDeque<Failed>>);

impl Failures {
    pub(crate) fn sandbox(&self, sandbox: &Sandbox, error: &Error) {
        let name = &sandbox.config().name;
        self.push(Failed {
            id: sandbox.id().to_owned(),
            name: format!("{}/{}", name.namespace, name.name),
            sandbox: None,
            at: clock::now(),
            why: error.message.clone(),
            timeline: sandbox.record().timeline.stages().to_vec(),
        });
    }

    pub(crate) fn container(&self, container: &Container, error: &Error) {
        self.push(Failed {
            id: container.id().to_owned(),
            name: container.config().name.clone(),
            sandbox: Some(container.metadata.sandbox.clone()),
            at: clock::now(),
            why: error.message.clone(),
            timeline: container.record().timeline.stages().to_vec(),
        });
    }

    fn push(&self, failed: Failed) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            all.pop_front();
        }
        all.push_back(failed);
    }

    /// The latest first.
    pub(crate) fn all(&self) -> Vec<Failed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }
}
