use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    engine::{Engine, Failure},
    pods::{RunningPod, Shape, remove_pod, start_pod},
};

/// A set of running pods. The processes of two of them can be identified by their command lines.
pub(super) struct PodSet {
    pods: Vec<RunningPod>,
    /// Mark of the container to freeze.
    pub(super) frozen: String,
    /// Mark of the container to kill.
    pub(super) killed: String,
}

impl PodSet {
    /// Creates `count` pods. If one fails, removes the others.
    pub(super) async fn create(
        engine: &Engine,
        shape: &Shape,
        count: usize,
        in_flight: usize,
    ) -> Result<Self, Failure> {
        let (frozen, killed) = (shape.marked(1), shape.marked(2));
        let create = |number: usize| {
            let shape = match number {
                0 => &frozen,
                1 => &killed,
                _ => shape,
            };
            async move { start_pod(engine, shape, &format!("list-{number}")).await }
        };
        let created: Vec<Result<RunningPod, Failure>> =
            stream::iter((0..count).map(create)).buffer_unordered(in_flight).collect().await;
        let (mut pods, mut failure) = (Vec::new(), None);
        for result in created {
            match result {
                Ok(pod) => pods.push(pod),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let set = Self { pods, frozen: frozen.mark().to_owned(), killed: killed.mark().to_owned() };
        match failure {
            None => Ok(set),
            Some(failure) => {
                set.remove(engine, in_flight).await?;
                Err(failure)
            }
        }
    }

    /// Removes all pods.
    pub(super) async fn remove(self, engine: &Engine, in_flight: usize) -> Result<(), Failure> {
        let removals = stream::iter(self.pods.into_iter().map(|pod| remove_pod(engine, pod)));
        removals.buffer_unordered(in_flight).try_collect::<()>().await
    }
}
