use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{Arguments, Node, event::State, kubectl::Kubectl, watch::Watch};
use crate::{
    engine::Failure,
    results::{Contestant, Description, Metric, TurnLog},
    run::Scenario,
};

const ALL_READY: &str = "all pods ready";
const ALL_REMOVED: &str = "all pods removed";
const START: &str = "start of a pod";
const REMOVAL: &str = "removal of a pod";

/// Timeout of the start or removal of pods, and what is added to it for each of them.
const TIMEOUT: Duration = Duration::from_secs(120);
const POD_TIMEOUT: Duration = Duration::from_secs(2);

/// DaemonSets of one pod each.
pub(super) struct DaemonSets {
    kubectl: Kubectl,
    nodes: Vec<Node>,
    contestants: Vec<Contestant>,
    image: String,
    pods: usize,
    at_once: Vec<usize>,
    rounds: usize,
    /// Number of bursts so far: each has names of its own, so that events of earlier pods are not mistaken for those of others.
    bursts: usize,
}

impl DaemonSets {
    /// Creates the namespace of the run.
    pub(super) fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let kubectl = Kubectl::new(&arguments.kubectl, &arguments.kubeconfig)?;
        let mut contestants = Vec::new();
        for Node { name, node } in &arguments.nodes {
            contestants.push(Contestant::new(name, &kubectl.versions(node)?, "a node of a cluster"));
        }
        Ok(Self {
            kubectl,
            nodes: arguments.nodes.clone(),
            contestants,
            image: arguments.image.clone(),
            pods: arguments.pods,
            at_once: arguments.at_once.clone(),
            rounds: arguments.rounds,
            bursts: 0,
        })
    }

    /// Measures a burst: all DaemonSets are created, and then deleted, so many at once.
    async fn burst(&mut self, contestant: usize, (pods, at_once): (usize, usize), log: &mut TurnLog) -> bool {
        self.bursts += 1;
        let names: Vec<String> = (0..pods).map(|number| format!("bench-{}-{number}", self.bursts)).collect();
        let parameter = Some(at_once as f64);
        let mut watch = match tokio::task::block_in_place(|| Watch::start(&self.kubectl)) {
            Ok(watch) => watch,
            Err(failure) => {
                log.fail(ALL_READY, parameter, &failure.0);
                return false;
            }
        };
        let start = Instant::now();
        let started = self.start(&mut watch, &self.nodes[contestant].node, names.chunks(at_once)).await;
        match &started {
            Ok(()) => log.add(ALL_READY, parameter, start.elapsed().as_secs_f64()),
            Err(failure) => log.fail(ALL_READY, parameter, &failure.0),
        }
        record(&watch, &names, (State::Created, State::Ready), |time| log.add_ms(START, parameter, time));
        if started.is_err() {
            return self.discard(&mut watch, &names, log).await;
        }
        let start = Instant::now();
        let removed = self.remove(&mut watch, names.chunks(at_once)).await;
        match &removed {
            Ok(()) => log.add(ALL_REMOVED, parameter, start.elapsed().as_secs_f64()),
            Err(failure) => log.fail(ALL_REMOVED, parameter, &failure.0),
        }
        record(&watch, &names, (State::Ending, State::Removed), |time| log.add_ms(REMOVAL, parameter, time));
        removed.is_ok()
    }

    async fn start(
        &self,
        watch: &mut Watch,
        node: &str,
        chunks: std::slice::Chunks<'_, String>,
    ) -> Result<(), Failure> {
        for names in chunks {
            tokio::task::block_in_place(|| self.kubectl.create(names, node, &self.image))?;
            watch.wait(names, State::Ready, limit(names)).await?;
        }
        Ok(())
    }

    async fn remove(&self, watch: &mut Watch, chunks: std::slice::Chunks<'_, String>) -> Result<(), Failure> {
        for names in chunks {
            tokio::task::block_in_place(|| self.kubectl.delete(names))?;
            watch.wait(names, State::Removed, limit(names)).await?;
        }
        Ok(())
    }

    /// Removes the pods of a burst that failed. Returns whether they are gone.
    async fn discard(&self, watch: &mut Watch, names: &[String], log: &mut TurnLog) -> bool {
        let created: Vec<String> =
            names.iter().filter(|name| watch.time(name, State::Created).is_some()).cloned().collect();
        let removed = match tokio::task::block_in_place(|| self.kubectl.delete_all()) {
            Ok(()) => watch.wait(&created, State::Removed, limit(&created)).await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = &removed {
            log.fail(REMOVAL, None, &failure.0);
        }
        removed.is_ok()
    }
}

fn limit(names: &[String]) -> Duration {
    TIMEOUT + POD_TIMEOUT.saturating_mul(u32::try_from(names.len()).unwrap_or(u32::MAX))
}

/// Passes the time between two states of each pod that had both.
fn record(watch: &Watch, names: &[String], (first, second): (State, State), mut each: impl FnMut(Duration)) {
    for name in names {
        if let (Some(first), Some(second)) = (watch.time(name, first), watch.time(name, second)) {
            each(second.saturating_duration_since(first));
        }
    }
}

impl Scenario for DaemonSets {
    fn description(&self) -> Description {
        let at_once: Vec<String> = self.at_once.iter().map(usize::to_string).collect();
        let settings = [
            ("image", self.image.clone()),
            ("DaemonSets of a burst", self.pods.to_string()),
            ("DaemonSets at once", at_once.join(", ")),
        ];
        Description {
            name: "daemonsets".to_owned(),
            title: "DaemonSets of a cluster".to_owned(),
            work: "DaemonSets of one pod each are created on a node of a real cluster, and then deleted, one after the other and at once. The time of all pods \
                   includes kubectl, API server, controllers and kubelet; that of a pod begins when it exists, and when it is to be removed."
                .to_owned(),
            parameter: "DaemonSets at once".to_owned(),
            common: String::new(),
            settings: BTreeMap::from(settings.map(|(name, value)| (name.to_owned(), value))),
            metrics: vec![
                Metric::lower(ALL_READY, "s").headline(),
                Metric::lower(ALL_REMOVED, "s"),
                Metric::lower(START, "ms"),
                Metric::lower(REMOVAL, "ms"),
            ],
            contestants: self.contestants.clone(),
            rounds: self.rounds,
        }
    }

    async fn warm_up(&mut self, contestant: usize) -> Result<(), Failure> {
        let mut log = TurnLog::default();
        self.burst(contestant, (1, 1), &mut log).await;
        log.failures.into_iter().next().map_or(Ok(()), |failure| Err(Failure(failure.cause)))
    }

    async fn turn(&mut self, contestant: usize, _round: usize, log: &mut TurnLog) {
        for at_once in self.at_once.clone() {
            if !self.burst(contestant, (self.pods.max(at_once), at_once), log).await {
                return;
            }
        }
    }

    async fn clean_up(&mut self) {
        // The namespace is deleted with everything in it when this is dropped.
        let _ = tokio::task::block_in_place(|| self.kubectl.delete_all());
    }
}
