use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};

use super::{RunningPod, Shape, begin, end};
use crate::engine::{Engine, Failure};

/// Pods of an engine that run during several turns.
pub(crate) struct PodSet {
    /// What their names begin with.
    prefix: &'static str,
    /// The running ones, by number.
    pods: BTreeMap<usize, RunningPod>,
    /// Number of attempts to complete the set. It is in the names: an attempt that failed may have left a pod.
    attempts: usize,
    /// Whether the engine did not respond. Each further pod would take as long.
    is_silent: bool,
}

impl PodSet {
    /// Creates a set without pods.
    pub(crate) fn new(prefix: &'static str) -> Self {
        Self { prefix, pods: BTreeMap::new(), attempts: 0, is_silent: false }
    }

    /// Creates the pods that are missing, some of them at a time. `shape` is that of the pod with a number.
    ///
    /// # Errors
    /// The first failure; what does run is kept.
    pub(crate) async fn grow(
        &mut self,
        engine: &Engine,
        (count, in_flight): (usize, usize),
        shape: impl Fn(usize) -> Shape,
    ) -> Result<(), Failure> {
        let missing: Vec<usize> = (0..count).filter(|number| !self.pods.contains_key(number)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        if self.is_silent {
            return Err(Failure(format!("{}: it did not respond before", engine.name)));
        }
        self.attempts += 1;
        let (prefix, attempt) = (self.prefix, self.attempts);
        let begin = |number: usize| {
            let shape = shape(number);
            async move { (number, begin(engine, &shape, &format!("{prefix}-{number}-{attempt}")).await) }
        };
        let mut begun = stream::iter(missing.into_iter().map(begin)).buffer_unordered(in_flight);
        let mut failure = None;
        while let Some((number, (mut life, pod))) = begun.next().await {
            self.pods.extend(pod.map(|pod| (number, pod)));
            failure = failure.or(life.take_failure());
            if life.has_timed_out() {
                self.is_silent = true;
                break;
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Returns the ids of the containers.
    pub(crate) fn containers(&self) -> Vec<&str> {
        self.pods.values().map(RunningPod::container).collect()
    }

    /// Removes all pods, some of them at a time.
    pub(crate) async fn remove(&mut self, engine: &Engine, in_flight: usize) {
        let pods = std::mem::take(&mut self.pods);
        let mut ended = stream::iter(pods.into_values().map(|pod| end(engine, pod))).buffer_unordered(in_flight);
        while let Some(life) = ended.next().await {
            if life.has_timed_out() {
                return;
            }
        }
    }
}
