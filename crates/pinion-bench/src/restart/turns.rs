use std::{collections::BTreeMap, process::Child};

use super::{Arguments, daemon};
use crate::{
    engine::{Endpoint, Engine, Failure},
    note::note,
    pods::{self, PodSet, Shape},
    results::{Contestant, Description, Metric, TurnLog},
    run::Scenario,
};

const READY: &str = "until the daemon is ready";
/// Number of pods that are created or removed concurrently.
const IN_FLIGHT: usize = 8;

/// Starts of daemons.
pub(super) struct Restart {
    arguments: Arguments,
    shape: Shape,
    pods: PodSet,
    /// The daemon that is running.
    running: Option<Child>,
}

impl Restart {
    pub(super) fn new(arguments: Arguments, shape: Shape) -> Self {
        Self { arguments, shape, pods: PodSet::new("restart"), running: None }
    }

    /// Creates the pods that are missing, with any of the daemons.
    async fn grow(&mut self, count: usize) -> Result<(), Failure> {
        if self.running.is_none() {
            let (child, _) = self.arguments.daemons[0].start(&self.arguments.config)?;
            self.running = Some(child);
        }
        let mut engine = self.connect().await?;
        engine.ensure_image(&self.arguments.image).await?;
        let shape = &self.shape;
        self.pods.grow(&engine, (count, IN_FLIGHT), |_| shape.clone()).await
    }

    async fn connect(&self) -> Result<Engine, Failure> {
        let (name, socket) = ("pinion".to_owned(), self.arguments.socket.clone());
        Engine::connect(&Endpoint { name, socket, handler: String::new(), image: None }).await
    }

    /// Measures a start.
    async fn restart(&mut self, contestant: usize, count: usize, log: &mut TurnLog) -> Result<(), Failure> {
        self.grow(count).await?;
        if let Some(mut running) = self.running.take() {
            daemon::stop(&mut running)?;
        }
        let (child, time) =
            tokio::task::block_in_place(|| self.arguments.daemons[contestant].start(&self.arguments.config))?;
        self.running = Some(child);
        log.add_ms(READY, Some(count as f64), time);
        Ok(())
    }
}

impl Scenario for Restart {
    fn description(&self) -> Description {
        let pods: Vec<String> = self.arguments.pods.iter().map(usize::to_string).collect();
        let settings = [
            ("image", self.arguments.image.clone()),
            ("pods", pods.join(", ")),
            ("network", self.shape.network().to_owned()),
        ];
        let contestants = self.arguments.daemons.iter();
        Description {
            name: "restart".to_owned(),
            title: "Starts of the daemon on a full node".to_owned(),
            work: "The daemon is stopped, and one is started with the same state and running pods, until it reports that it is ready.".to_owned(),
            parameter: "pods".to_owned(),
            common: String::new(),
            settings: BTreeMap::from(settings.map(|(name, value)| (name.to_owned(), value))),
            metrics: vec![Metric::lower(READY, "ms").headline()],
            contestants: contestants.map(|one| Contestant::new(&one.name, &one.version(), "daemon")).collect(),
            rounds: self.arguments.pods.len() * self.arguments.rounds,
        }
    }

    async fn warm_up(&mut self, _contestant: usize) -> Result<(), Failure> {
        Ok(())
    }

    async fn turn(&mut self, contestant: usize, round: usize, log: &mut TurnLog) {
        let Some(count) = self.arguments.pods.get(round / self.arguments.rounds).copied() else { return };
        if let Err(failure) = self.restart(contestant, count, log).await {
            log.fail(READY, Some(count as f64), &failure.0);
        }
    }

    async fn clean_up(&mut self) {
        let removed = async {
            if self.running.is_none() {
                let (child, _) = self.arguments.daemons[0].start(&self.arguments.config)?;
                self.running = Some(child);
            }
            let engine = self.connect().await?;
            self.pods.remove(&engine, IN_FLIGHT).await;
            pods::remove_leftovers(std::slice::from_ref(&engine), &self.shape).await;
            Ok::<(), Failure>(())
        };
        if let Err(failure) = removed.await {
            note(&format!("pinion-bench: {failure}; pods may be left over"));
        }
        if let Some(Err(failure)) = self.running.take().map(|mut running| daemon::stop(&mut running)) {
            note(&format!("pinion-bench: {failure}"));
        }
    }
}
