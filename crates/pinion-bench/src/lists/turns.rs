use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tonic::{Code, transport::Channel};

use super::{call::List, disturbed_set::DisturbedSet};
use crate::{
    engine::{Engine, Failure},
    pods::{self, Shape},
    process::cpu_time,
    results::{Description, Metric, TurnLog},
    run::Scenario,
};

/// Requests before the measurement of a turn, because the first ones to an engine that samples return nothing.
const WARMUP: usize = 3;
/// How long a list is requested in a turn, and before it: an engine that takes seconds must not take hours.
const BUDGET: Duration = Duration::from_secs(4);
const WARMUP_BUDGET: Duration = Duration::from_secs(1);
/// Difference of responses in KiB that is none: numbers in them have more or fewer digits.
const SIZE_RESOLUTION: f64 = 0.1;
/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The requests of a turn.
pub(super) struct Load {
    /// Requests of each client for each list.
    pub(super) requests: usize,
    pub(super) clients: usize,
    /// Time between two requests of a client.
    pub(super) pause: Duration,
    /// Pods that are created or removed at a time.
    pub(super) in_flight: usize,
    /// Rounds of each phase.
    pub(super) rounds: usize,
}

/// A part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    pods: usize,
    /// Whether one container is frozen and one killed.
    is_disturbed: bool,
}

/// Returns the phases for numbers of pods in ascending order.
pub(super) fn phases(pods: &[usize], only_calm: bool) -> Vec<Phase> {
    let disturbed = pods.last().filter(|_| !only_calm).map(|pods| Phase { pods: *pods, is_disturbed: true });
    pods.iter().map(|pods| Phase { pods: *pods, is_disturbed: false }).chain(disturbed).collect()
}

/// List requests.
pub(super) struct Lists {
    engines: Vec<Engine>,
    shape: Shape,
    load: Load,
    phases: Vec<Phase>,
    sets: Vec<DisturbedSet>,
}

impl Lists {
    pub(super) fn new(engines: Vec<Engine>, shape: Shape, load: Load, phases: Vec<Phase>) -> Self {
        let sets = (0..engines.len()).map(|engine| DisturbedSet::new(&shape, engine)).collect();
        Self { engines, shape, load, phases, sets }
    }

    /// Measures a list.
    async fn measure(&self, engine: &Engine, list: List, phase: Phase, channels: &[Channel], log: &mut TurnLog) {
        let (parameter, name) = (Some(phase.pods as f64), name(list, phase.is_disturbed));
        let begin = Instant::now();
        for _ in 0..WARMUP {
            if begin.elapsed() > WARMUP_BUDGET {
                break;
            }
            match request(list, &engine.channel).await {
                Ok(_) => {}
                // A request that an engine does not have does not count as a failure: the row has no value of it.
                Err((Code::Unimplemented, _)) => return,
                Err((_, cause)) => return log.fail(&name, parameter, &cause),
            }
        }
        let daemon = engine.daemon_now();
        let cpu = || daemon.as_ref().ok().and_then(|daemon| cpu_time(*daemon).ok());
        let before = cpu();
        let clients = channels.iter().map(|channel| self.client(list, channel));
        let responses: Vec<_> = join_all(clients).await.into_iter().flatten().collect();
        let used = before.zip(cpu()).map(|(before, after)| after.saturating_sub(before));
        for response in &responses {
            match response {
                Ok((time, _)) => log.add_ms(&name, parameter, *time),
                Err(cause) => log.fail(&name, parameter, cause),
            }
        }
        if phase.is_disturbed {
            return;
        }
        // Responses that failed are less work.
        if let Some(used) = used.filter(|_| responses.iter().all(Result::is_ok)) {
            log.add_ms(&cpu_name(list), parameter, used / responses.len().max(1) as u32);
        }
        if let Some(Ok((_, bytes))) = responses.last() {
            log.add(&size_name(list), parameter, *bytes as f64 / 1024.0);
        }
    }

    /// Sends the requests of one client. Returns the time and the length of each response.
    async fn client(&self, list: List, channel: &Channel) -> Vec<Result<(Duration, usize), String>> {
        let mut responses = Vec::with_capacity(self.load.requests);
        let begin = Instant::now();
        for _ in 0..self.load.requests {
            if begin.elapsed() > BUDGET {
                break;
            }
            let start = Instant::now();
            let response = request(list, channel).await;
            responses.push(response.map(|bytes| (start.elapsed(), bytes)).map_err(|(_, cause)| cause));
            tokio::time::sleep(self.load.pause).await;
        }
        responses
    }
}

/// Sends a request for a limited time. Returns the length of the response.
async fn request(list: List, channel: &Channel) -> Result<usize, (Code, String)> {
    match tokio::time::timeout(TIMEOUT, list.request(channel)).await {
        Ok(response) => response.map_err(|status| (status.code(), status.message().to_owned())),
        Err(_) => Err((Code::DeadlineExceeded, format!("no response in {} s", TIMEOUT.as_secs()))),
    }
}

fn name(list: List, is_disturbed: bool) -> String {
    let suffix = if is_disturbed { ", a container frozen and one killed" } else { "" };
    format!("{}{suffix}", list.name())
}

fn cpu_name(list: List) -> String {
    format!("{}, CPU of the daemon", list.name())
}

fn size_name(list: List) -> String {
    format!("{}, response", list.name())
}

impl Scenario for Lists {
    fn description(&self) -> Description {
        let metric = |list: &List, is_disturbed| Metric::lower(&name(*list, is_disturbed), "ms");
        let headline = [List::Pods, List::Containers].map(|list| metric(&list, false).headline());
        let others = List::ALL.iter().skip(headline.len()).map(|list| metric(list, false));
        let mut metrics: Vec<Metric> = headline.into_iter().chain(others).collect();
        metrics.extend(List::ALL.iter().map(|list| metric(list, true)));
        metrics.extend(List::ALL.iter().map(|list| Metric::lower(&cpu_name(*list), "ms")));
        metrics.extend(
            List::ALL.iter().map(|list| Metric::lower(&size_name(*list), "KiB").with_resolution(SIZE_RESOLUTION, 0.0)),
        );
        let settings = [
            ("requests of a turn for each list and client", self.load.requests.to_string()),
            ("clients", self.load.clients.to_string()),
            ("milliseconds between two requests", self.load.pause.as_millis().to_string()),
            ("network", self.shape.network().to_owned()),
            ("phases", format!("{:?}", self.phases)),
        ];
        Description {
            name: "lists".to_owned(),
            title: "Lists of pods and containers".to_owned(),
            work: "List requests of a kubelet and of a metrics agent, with more and more pods of one container; the pods of all engines run at the \
                   same time."
                .to_owned(),
            parameter: "pods".to_owned(),
            common: String::new(),
            settings: BTreeMap::from(settings.map(|(name, value)| (name.to_owned(), value))),
            metrics,
            contestants: self.engines.iter().map(pods::contestant).collect(),
            rounds: self.phases.len() * self.load.rounds,
        }
    }

    async fn warm_up(&mut self, _contestant: usize) -> Result<(), Failure> {
        Ok(())
    }

    async fn turn(&mut self, contestant: usize, round: usize, log: &mut TurnLog) {
        let Some(phase) = self.phases.get(round / self.load.rounds).copied() else { return };
        // Otherwise an engine would create pods while another one is measured.
        for (engine, set) in self.engines.iter().zip(&mut self.sets) {
            let grown = set.grow(engine, (phase.pods, self.load.in_flight)).await;
            let disturbed = grown.and_then(|()| if phase.is_disturbed { set.disturb() } else { Ok(()) });
            if let Err(failure) = disturbed
                && engine.name == self.engines[contestant].name
            {
                log.fail(&name(List::Pods, phase.is_disturbed), Some(phase.pods as f64), &failure.0);
                return;
            }
        }
        let engine = &self.engines[contestant];
        let mut channels = vec![engine.channel.clone()];
        while channels.len() < self.load.clients {
            match engine.new_channel().await {
                Ok(channel) => channels.push(channel),
                Err(failure) => return log.fail(&name(List::Pods, false), Some(phase.pods as f64), &failure.0),
            }
        }
        for list in List::ALL {
            self.measure(engine, list, phase, &channels, log).await;
        }
    }

    async fn clean_up(&mut self) {
        for (engine, set) in self.engines.iter().zip(&mut self.sets) {
            set.remove(engine, self.load.in_flight).await;
        }
        pods::remove_leftovers(&self.engines, &self.shape).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_phase_is_disturbed() {
        let phase = |pods, is_disturbed| Phase { pods, is_disturbed };
        assert_eq!(phases(&[1, 10], false), [phase(1, false), phase(10, false), phase(10, true)]);
        assert_eq!(phases(&[1], true), [phase(1, false)]);
    }
}
