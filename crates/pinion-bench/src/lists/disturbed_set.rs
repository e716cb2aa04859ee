use super::faults::{self, FreezeGuard};
use crate::{
    engine::{Engine, Failure},
    pods::{PodSet, Shape},
};

/// Running pods of an engine, of which one can be frozen and one killed: their processes have command lines of their own.
pub(super) struct DisturbedSet {
    pods: PodSet,
    shape: Shape,
    /// Shape of the pod whose container is frozen.
    frozen: Shape,
    /// Shape of the pod whose container is killed.
    killed: Shape,
    freeze: Option<FreezeGuard>,
}

impl DisturbedSet {
    /// Creates the set of the engine with this index, without pods.
    pub(super) fn new(shape: &Shape, engine: usize) -> Self {
        let mark = 1 + 2 * engine as u64;
        let (frozen, killed) = (shape.marked(mark), shape.marked(mark + 1));
        Self { pods: PodSet::new("list"), shape: shape.clone(), frozen, killed, freeze: None }
    }

    /// Creates the pods that are missing, some of them at a time.
    pub(super) async fn grow(&mut self, engine: &Engine, count: (usize, usize)) -> Result<(), Failure> {
        let (frozen, killed, shape) = (&self.frozen, &self.killed, &self.shape);
        let shape = |number: usize| match number {
            0 => frozen.clone(),
            1 => killed.clone(),
            _ => shape.clone(),
        };
        self.pods.grow(engine, count, shape).await
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
        self.pods.remove(engine, in_flight).await;
    }
}
