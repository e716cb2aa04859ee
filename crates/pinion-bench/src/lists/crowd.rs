use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    engine::{Engine, Failure},
    pods::{Alive, Shape, begin, end},
};

/// Pods that live at once. The processes of two of them can be told from all others by their command line.
pub(super) struct Crowd {
    alive: Vec<Alive>,
    /// The mark of the container that will be frozen.
    pub(super) frozen: String,
    /// The mark of the container that will be killed.
    pub(super) dead: String,
}

impl Crowd {
    /// Makes `pods` pods. Those that were made are removed again where one fails.
    pub(super) async fn raise(engine: &Engine, shape: &Shape, pods: usize, in_flight: usize) -> Result<Self, Failure> {
        let (frozen, dead) = (shape.marked(1), shape.marked(2));
        let make = |number: usize| {
            let shape = match number {
                0 => &frozen,
                1 => &dead,
                _ => shape,
            };
            async move { begin(engine, shape, &format!("crowd-{number}")).await }
        };
        let made: Vec<Result<Alive, Failure>> =
            stream::iter((0..pods).map(make)).buffer_unordered(in_flight).collect().await;
        let (mut alive, mut failure) = (Vec::new(), None);
        for one in made {
            match one {
                Ok(one) => alive.push(one),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let crowd = Self { alive, frozen: frozen.mark().to_owned(), dead: dead.mark().to_owned() };
        match failure {
            None => Ok(crowd),
            Some(failure) => {
                crowd.lower(engine, in_flight).await?;
                Err(failure)
            }
        }
    }

    /// Removes them.
    pub(super) async fn lower(self, engine: &Engine, in_flight: usize) -> Result<(), Failure> {
        let ends = stream::iter(self.alive.into_iter().map(|alive| end(engine, alive)));
        ends.buffer_unordered(in_flight).try_collect::<()>().await
    }
}
