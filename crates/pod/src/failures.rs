//! What could not be made, of late: nothing of it is left but these words, for `why`.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use crate::{
    Error, clock,
    container::{Container, start::START_ERROR},
    sandbox::Sandbox,
    timeline::Stage,
};

const NOT_MADE: &str = "could not be made";
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
    /// `could not be made`, …
    pub(crate) state: &'static str,
    pub(crate) timeline: Vec<Stage>,
}

/// Stages of something that is gone: none of them continues.
fn ended(stages: &[Stage]) -> Vec<Stage> {
    let now = clock::now();
    let mut stages = stages.to_vec();
    stages.iter_mut().filter(|stage| stage.ended == 0).for_each(|stage| stage.ended = now);
    stages
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
            state: NOT_MADE,
            timeline: ended(sandbox.record().timeline.stages()),
        });
    }

    pub(crate) fn container(&self, container: &Container, error: &Error) {
        self.push_container(container, error.message.clone(), NOT_MADE);
    }

    /// A container that is being removed: if it could not be started, the reason is known for longer than its record.
    pub(crate) fn removed(&self, container: &Container) {
        let record = container.record();
        if record.reason == START_ERROR {
            self.push_container(container, record.message.clone(), "could not be started, and was removed");
        }
    }

    fn push_container(&self, container: &Container, why: String, state: &'static str) {
        self.push(Failed {
            id: container.id().to_owned(),
            name: container.config().name.clone(),
            sandbox: Some(container.metadata.sandbox.clone()),
            at: clock::now(),
            why,
            state,
            timeline: ended(container.record().timeline.stages()),
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
