use std::{collections::BTreeMap, path::PathBuf};

use super::{Attacher, Cycle, Worker, lists::List};
use crate::{
    engine::Failure,
    results::{Contestant, Description, Metric, TurnLog},
    run::Scenario,
};

const ATTACH: &str = "attach";
const DETACH: &str = "detach";
const SETTLE: &str = "until nothing is left";
const ALL: &str = "all of it";

/// Pods that are attached and detached by the engine and by programs.
pub(super) struct Networks {
    plugins: PathBuf,
    lists: Vec<List>,
    pods: Vec<usize>,
    rounds: usize,
    /// The nodes of the current case.
    current: Option<Case>,
}

/// A network, and the number of pods that are attached to it all the time; with a node for each contestant.
struct Case {
    number: usize,
    workers: [Option<Worker>; 2],
}

const ATTACHERS: [Attacher; 2] = [Attacher::Engine, Attacher::Programs];

impl Networks {
    pub(super) fn new(plugins: PathBuf, lists: Vec<List>, pods: Vec<usize>, rounds: usize) -> Self {
        Self { plugins, lists, pods, rounds, current: None }
    }

    /// Returns network and number of pods of a case.
    fn case(&self, number: usize) -> Option<(List, usize)> {
        Some((*self.lists.get(number / self.pods.len())?, *self.pods.get(number % self.pods.len())?))
    }

    /// Attaches and detaches a pod, on a node that is started first if it is not there.
    fn cycle(&mut self, contestant: usize, number: usize, (list, pods): (List, usize)) -> Result<Cycle, Failure> {
        let case = match self.current.take() {
            Some(case) if case.number == number => case,
            _ => Case { number, workers: [None, None] },
        };
        let worker = &mut self.current.insert(case).workers[contestant];
        let node = match worker {
            Some(node) => node,
            None => {
                let mut node = Worker::start(ATTACHERS[contestant], list, &self.plugins)?;
                node.request::<()>(&format!("fill {pods}"), u32::try_from(pods).unwrap_or(u32::MAX))?;
                // The first pod makes the bridge and the tables.
                node.request::<Cycle>("cycle", 1)?;
                worker.insert(node)
            }
        };
        let cycle = node.request("cycle", 1);
        if cycle.is_err() {
            // The worker ends with its first error.
            *worker = None;
        }
        cycle
    }
}

fn named(list: List, part: &str) -> String {
    format!("{}: {part}", list.name())
}

impl Scenario for Networks {
    fn description(&self) -> Description {
        let metrics = self.lists.iter().flat_map(|list| {
            let parts = [ATTACH, DETACH, SETTLE].map(|part| Metric::lower(&named(*list, part), "ms"));
            std::iter::once(Metric::lower(&named(*list, ALL), "ms").headline()).chain(parts)
        });
        let pods: Vec<String> = self.pods.iter().map(usize::to_string).collect();
        let lists: Vec<&str> = self.lists.iter().map(|list| list.name()).collect();
        let settings = [
            ("networks", lists.join(", ")),
            ("pods that are attached", pods.join(", ")),
            ("plugins", self.plugins.to_string_lossy().into_owned()),
        ];
        Description {
            name: "cni".to_owned(),
            title: "Pods that are attached to networks".to_owned(),
            work: "A pod is attached to a network and detached, in the process of the engine and by the programs of CNI plugins with the same \
                   configuration, each on a node of its own."
                .to_owned(),
            parameter: "pods that are attached".to_owned(),
            common: String::new(),
            settings: BTreeMap::from(settings.map(|(name, value)| (name.to_owned(), value))),
            metrics: metrics.collect(),
            contestants: vec![
                Contestant::new("pinion", env!("CARGO_PKG_VERSION"), "in the process of the engine"),
                Contestant::new("programs", "those of the directory", "programs of CNI plugins"),
            ],
            rounds: self.lists.len() * self.pods.len() * self.rounds,
        }
    }

    async fn warm_up(&mut self, _contestant: usize) -> Result<(), Failure> {
        Ok(())
    }

    async fn turn(&mut self, contestant: usize, round: usize, log: &mut TurnLog) {
        let number = round / self.rounds;
        let Some((list, pods)) = self.case(number) else { return };
        let parameter = Some(pods as f64);
        match tokio::task::block_in_place(|| self.cycle(contestant, number, (list, pods))) {
            Ok(cycle) => {
                let all = cycle.attach_ms + cycle.detach_ms + cycle.settle_ms;
                let values =
                    [(ALL, all), (ATTACH, cycle.attach_ms), (DETACH, cycle.detach_ms), (SETTLE, cycle.settle_ms)];
                for (part, value) in values {
                    log.add(&named(list, part), parameter, value);
                }
            }
            Err(failure) => log.fail(&named(list, ALL), parameter, &failure.0),
        }
    }

    async fn clean_up(&mut self) {
        self.current = None;
    }
}
