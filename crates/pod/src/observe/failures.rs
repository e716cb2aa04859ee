//! Recent failures to create or start an object, kept for `pinion why`: the objects themselves were removed.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use crate::{
    Error, ObjectId, ObjectState, SandboxId, clock,
    store::{Container, Sandbox, Stage},
};

/// Number of failures that are kept, of pods and containers together.
const FAILURES_MAX: usize = 128;

/// A pod or container that could not be created, or a removed container that could not be started.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The id that the object had.
    pub(crate) id: ObjectId,
    /// `namespace/name` of a pod, or the name of a container.
    pub(crate) name: String,
    /// The pod of a container; `None` for a pod.
    pub(crate) sandbox: Option<SandboxId>,
    /// Time of the failure, in nanoseconds since the epoch.
    pub(crate) at: u64,
    pub(crate) why: String,
    /// State shown by `pinion why`.
    pub(crate) state: ObjectState,
    pub(crate) timeline: Vec<Stage>,
}

/// Returns the stages of an object that was removed: stages without an end end now.
fn ended_stages(stages: &[Stage]) -> Vec<Stage> {
    let now = clock::now();
    let mut stages = stages.to_vec();
    stages.iter_mut().filter(|stage| stage.ended == 0).for_each(|stage| stage.ended = now);
    stages
}

/// The most recent failures.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<VecDeque<Failure>>);

impl Failures {
    pub(crate) fn add_sandbox(&self, sandbox: &Sandbox, error: &Error) {
        let name = &sandbox.config().name;
        self.push(Failure {
            id: ObjectId::Sandbox(sandbox.id().clone()),
            name: format!("{}/{}", name.namespace, name.name),
            sandbox: None,
            at: clock::now(),
            why: error.message.clone(),
            state: ObjectState::NotCreated,
            timeline: ended_stages(sandbox.record().timeline.stages()),
        });
    }

    pub(crate) fn add_container(&self, container: &Container, error: &Error) {
        self.push_container(container, error.message.clone(), ObjectState::NotCreated);
    }

    /// Adds a container that is being removed if it could not be started, so that the reason outlives its record.
    pub(crate) fn add_removed(&self, container: &Container) {
        let record = container.record();
        if record.has_start_failed() {
            self.push_container(container, record.message.clone(), ObjectState::NotStarted);
        }
    }

    fn push_container(&self, container: &Container, why: String, state: ObjectState) {
        self.push(Failure {
            id: ObjectId::Container(container.id().clone()),
            name: container.config().name.clone(),
            sandbox: Some(container.metadata.sandbox.clone()),
            at: clock::now(),
            why,
            state,
            timeline: ended_stages(container.record().timeline.stages()),
        });
    }

    fn push(&self, failure: Failure) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= FAILURES_MAX {
            failures.pop_front();
        }
        failures.push_back(failure);
    }

    /// Returns all failures, the latest first.
    pub(crate) fn all(&self) -> Vec<Failure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }
}
