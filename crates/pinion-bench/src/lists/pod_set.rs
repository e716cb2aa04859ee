use futures_util::{StreamExt, stream};

use super::faults::{self, FreezeGuard};
use crate::{
    engine::{Engine, Failure},
    pods::{self, RunningPod, Shape},
};

/// Running pods of an engine. The processes of two of them can be identified by their command lines.
pub(super) struct PodSet {
    /// Index of the engine. Two of them may be the same one under different names.
    engine: usize,
    pods: Vec<RunningPod>,
    /// Shape of the pod whose container is frozen.
    frozen: Shape,
    /// Shape of the pod whose container is killed.
    killed: Shape,
    freeze: Option<FreezeGuard>,
}

impl PodSet {
    /// Creates the set of the engine with this index, without pods.
    pub(super) fn new(shape: &Shape, engine: usize) -> Self {
        let mark = 1 + 2 * engine as u64;
        let (frozen, killed) = (shape.marked(mark), shape.marked(mark + 1));
        Self { engine, pods: Vec::new(), frozen, killed, freeze: None }
    }

    /// Creates the pods that are missing, some of them at a time.
    pub(super) async fn grow(
        &mut self,
        engine: &Engine,
        shape: &Shape,
        (count, in_flight): (usize, usize),
    ) -> Result<(), Failure> {
        let (index, frozen, killed) = (self.engine, &self.frozen, &self.killed);
        let begin = |number: usize| {
            let shape = match number {
                0 => frozen,
                1 => killed,
                _ => shape,
            };
            async move { pods::begin(engine, shape, &format!("list-{index}-{number}")).await }
        };
        let mut begun = stream::iter((self.pods.len()..count).map(begin)).buffer_unordered(in_flight);
        let mut failure = None;
        while let Some((mut life, pod)) = begun.next().await {
            self.pods.extend(pod);
            failure = failure.or(life.take_failure());
            if failure.is_some() {
                break;
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Freezes one container and kills another one, once.
    pub(super) fn disturb(&mut self) -> Result<(), Failure> {
        if self.freeze.is_none() {
            self.freeze = Some(faults::freeze(self.frozen.mark())?);
            faults::kill(self.killed.mark())?;
        }
        Ok(())
    }

    /// Removes all pods.
    pub(super) async fn remove(&mut self, engine: &Engine, in_flight: usize) {
        // A frozen container cannot be stopped by every engine.
        self.freeze = None;
        let mut ended = stream::iter(self.pods.drain(..).map(|pod| pods::end(engine, pod))).buffer_unordered(in_flight);
        while let Some(life) = ended.next().await {
            if life.has_timed_out() {
                return;
            }
        }
    }
}
