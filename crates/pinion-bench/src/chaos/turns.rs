use std::{
    collections::{BTreeMap, BTreeSet},
    process::Child,
    time::{Duration, Instant},
};

use cri_proto::v1::{
    ContainerState, ListContainersRequest, VersionRequest, runtime_service_client::RuntimeServiceClient,
};
use futures_util::{StreamExt, stream};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinHandle;

use super::{node::Node, parts};
use crate::{
    engine::{Engine, Failure},
    pods::{self, RunningPod, Shape},
    results::{Description, Metric, TurnLog},
    run::Scenario,
};

/// How long an engine may take to answer again, and to run a pod that failed.
const RECOVERY: Duration = Duration::from_secs(60);
/// Interval of requests to an engine that does not answer, and between two attempts to run a pod.
const PERIOD: Duration = Duration::from_millis(10);
const RETRY: Duration = Duration::from_millis(100);

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// The process that listens on the engine's socket.
    Daemon,
    /// The parents of containers.
    Parents,
}

const VICTIMS: [Victim; 2] = [Victim::Daemon, Victim::Parents];
const LEFT: [&str; 4] = ["processes left", "mounts left", "links left", "cgroups left"];

/// Kills of an engine's parts while pods start.
pub(super) struct Chaos {
    pub(super) engines: Vec<Engine>,
    pub(super) shape: Shape,
    pub(super) pods: usize,
    pub(super) at_once: usize,
    pub(super) rounds: usize,
    /// Commands that start daemons, by the engine's name.
    pub(super) starts: BTreeMap<String, String>,
    /// Programs that are parents of containers.
    pub(super) parts: BTreeMap<String, String>,
    /// Daemons that this program has started.
    pub(super) daemons: BTreeMap<String, Child>,
}

/// Pods that are running, and names of those that failed.
#[derive(Default)]
struct Burst {
    running: Vec<RunningPod>,
    failed: Vec<String>,
    killed: Option<Result<Kill, String>>,
}

/// A kill: its time, and the time of the first answer after it.
struct Kill {
    at: Instant,
    answer: JoinHandle<Result<Instant, String>>,
}

impl Chaos {
    /// Kills a victim while pods start, and records what happens.
    async fn kill_one(&mut self, contestant: usize, victim: Victim, round: usize, log: &mut TurnLog) {
        let engine = self.engines[contestant].clone();
        let mut known = Node::now();
        let mut burst = self.start_pods(&engine, victim, round).await;
        let has_recovered = self.observe(&engine, victim, &mut burst, log).await;
        // Pods that stay would count as those of a later turn.
        for pod in burst.running {
            // A failure shows in what is left.
            if pods::end(&engine, pod).await.has_timed_out() {
                break; // Each further pod would take as long.
            }
        }
        pods::remove_leftovers(std::slice::from_ref(&engine), &self.shape).await;
        if !has_recovered {
            return;
        }
        known.processes.extend(engine.daemon_now());
        for (name, count) in LEFT.iter().zip(known.leftovers().await) {
            log.add(&metric(victim, name), None, count as f64);
        }
    }

    /// Waits until the engine answers and all pods run, and records what was lost. Returns whether the engine answers.
    async fn observe(&self, engine: &Engine, victim: Victim, burst: &mut Burst, log: &mut TurnLog) -> bool {
        let mut fail = |cause: &str| {
            log.fail(&metric(victim, ANSWERS), None, cause);
            false
        };
        let killed = match burst.killed.take() {
            Some(Ok(killed)) => killed,
            Some(Err(cause)) => return fail(&cause),
            None => return fail("too few pods started to kill anything"),
        };
        match killed.answer.await.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(answer) => log.add_ms(&metric(victim, ANSWERS), None, answer - killed.at),
            Err(cause) => return fail(&cause),
        }
        match self.retry(engine, burst).await {
            Ok(()) => log.add_ms(&metric(victim, COMPLETE), None, killed.at.elapsed()),
            Err(cause) => log.fail(&metric(victim, COMPLETE), None, &cause),
        }
        let alive = parts::with_command(&self.shape.command()).len();
        log.add(&metric(victim, ENDED), None, burst.running.len().saturating_sub(alive) as f64);
        match running(engine).await {
            Ok(ids) => {
                let lost = burst.running.iter().filter(|pod| !ids.contains(pod.container())).count();
                log.add(&metric(victim, LOST), None, lost as f64);
            }
            Err(cause) => log.fail(&metric(victim, LOST), None, &cause),
        }
        true
    }

    /// Starts pods, and kills the victim when half of them are running.
    async fn start_pods(&mut self, engine: &Engine, victim: Victim, round: usize) -> Burst {
        let mut burst = Burst::default();
        let shape = self.shape.clone();
        let begin = |number: usize| {
            let (name, shape) = (format!("chaos-{victim:?}-{round}-{number}").to_lowercase(), &shape);
            async move {
                let (_, pod) = pods::begin(engine, shape, &name).await;
                (name, pod)
            }
        };
        let mut begun = stream::iter((0..self.pods).map(begin)).buffer_unordered(self.at_once);
        while let Some((name, pod)) = begun.next().await {
            match pod {
                Some(pod) => burst.running.push(pod),
                None => burst.failed.push(name),
            }
            if burst.killed.is_none() && burst.running.len() * 2 >= self.pods {
                burst.killed = Some(self.kill(engine, victim).map(|at| {
                    let engine = engine.clone();
                    Kill { at, answer: tokio::spawn(async move { wait_for_answer(&engine).await }) }
                }));
            }
        }
        burst
    }

    fn kill(&mut self, engine: &Engine, victim: Victim) -> Result<Instant, String> {
        match victim {
            Victim::Daemon => {
                let daemon = engine.daemon_now().map_err(|failure| failure.0)?;
                parts::kill(daemon)?;
                let killed = Instant::now();
                if let Some(mut child) = self.daemons.remove(&engine.name) {
                    // Another one may have taken its place, and then it runs on.
                    let _ = parts::wait(&mut child);
                }
                if let Some(command) = self.starts.get(&engine.name) {
                    self.daemons.insert(engine.name.clone(), parts::start(command)?);
                }
                Ok(killed)
            }
            Victim::Parents => {
                let program = self.parts.get(&engine.name).ok_or("no program is named")?;
                let pids = parts::parents(program, &self.shape.command());
                if pids.is_empty() {
                    return Err(format!("no process of {program} is a parent of these containers"));
                }
                let killed = Instant::now();
                // One that has exited is as good as killed.
                let count = pids.into_iter().filter(|pid| parts::kill(*pid).is_ok()).count();
                if count > 0 { Ok(killed) } else { Err(format!("no process of {program} could be killed")) }
            }
        }
    }

    /// Runs the pods that failed, as a kubelet would: again and again, and each time as another attempt.
    async fn retry(&self, engine: &Engine, burst: &mut Burst) -> Result<(), String> {
        let deadline = Instant::now() + RECOVERY;
        for name in std::mem::take(&mut burst.failed) {
            for attempt in 1.. {
                let (mut life, pod) = pods::begin(engine, &self.shape, &format!("{name}-{attempt}")).await;
                if let Some(pod) = pod {
                    burst.running.push(pod);
                    break;
                }
                if Instant::now() > deadline {
                    return Err(life.take_failure().map(|failure| failure.0).unwrap_or_default());
                }
                tokio::time::sleep(RETRY).await;
            }
        }
        Ok(())
    }

    /// Ends the daemons that this program has started.
    pub(super) fn end_daemons(&mut self) {
        for (_, mut child) in std::mem::take(&mut self.daemons) {
            // It may have exited.
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
            if !parts::wait(&mut child) {
                let _ = kill_process(Pid::from_child(&child), Signal::KILL);
                let _ = parts::wait(&mut child);
            }
        }
    }
}

/// Waits until an engine answers a new connection. Returns when it did.
async fn wait_for_answer(engine: &Engine) -> Result<Instant, String> {
    let deadline = Instant::now() + RECOVERY;
    loop {
        let answer = async {
            let channel = engine.new_channel().await.map_err(|failure| failure.0)?;
            let version = RuntimeServiceClient::new(channel).version(VersionRequest::default()).await;
            version.map(drop).map_err(|status| status.message().to_owned())
        };
        let cause = match tokio::time::timeout(RECOVERY, answer).await {
            Ok(Ok(())) => return Ok(Instant::now()),
            Ok(Err(cause)) => cause,
            Err(_) => "no response".to_owned(),
        };
        if Instant::now() > deadline {
            return Err(cause);
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Returns the ids of running containers.
async fn running(engine: &Engine) -> Result<BTreeSet<String>, String> {
    let mut runtime = engine.runtime.clone();
    let list = tokio::time::timeout(RECOVERY, runtime.list_containers(ListContainersRequest::default()))
        .await
        .map_err(|_| "ListContainers: no response".to_owned())?;
    let list = list.map_err(|status| format!("ListContainers: {}", status.message()))?.into_inner();
    let is_running = |state: i32| state == i32::from(ContainerState::ContainerRunning);
    Ok(list.containers.into_iter().filter(|one| is_running(one.state)).map(|one| one.id).collect())
}

const ANSWERS: &str = "until the engine answers";
const COMPLETE: &str = "until all pods are running";
const ENDED: &str = "containers that ended";
const LOST: &str = "containers that are not reported as running";

fn metric(victim: Victim, name: &str) -> String {
    let victim = match victim {
        Victim::Daemon => "daemon killed",
        Victim::Parents => "parents of containers killed",
    };
    format!("{victim}: {name}")
}

impl Scenario for Chaos {
    fn description(&self) -> Description {
        let has_parts = |victim: &Victim| *victim == Victim::Daemon || !self.parts.is_empty();
        let metrics = VICTIMS.iter().filter(|victim| has_parts(victim)).flat_map(|victim| {
            let times = [ANSWERS, COMPLETE].map(|name| Metric::lower(&metric(*victim, name), "ms"));
            let ended = Metric::lower(&metric(*victim, ENDED), "").headline();
            let counts = std::iter::once(LOST).chain(LEFT).map(|name| Metric::lower(&metric(*victim, name), ""));
            std::iter::once(ended).chain(times).chain(counts).collect::<Vec<_>>()
        });
        let named = |values: &BTreeMap<String, String>| {
            values.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("; ")
        };
        let settings = [
            ("image", self.shape.image().to_owned()),
            ("pods", self.pods.to_string()),
            ("pods at once", self.at_once.to_string()),
            ("parents of containers", named(&self.parts)),
            ("network", self.shape.network().to_owned()),
        ];
        Description {
            name: "chaos".to_owned(),
            title: "Kills while pods start".to_owned(),
            work: "When half of the pods are running, the daemon is killed with SIGKILL and started again; then the same with the processes that are \
                   parents of containers. Pods that failed are requested again until they run, one after the other; what is left of an attempt is removed before, for which the client waits a \
                   second if the engine does not answer. Then all are removed, and what is left is counted."
                .to_owned(),
            parameter: String::new(),
            common: format!("{} pods", self.pods),
            settings: BTreeMap::from(settings.map(|(name, value)| (name.to_owned(), value))),
            metrics: metrics.collect(),
            contestants: self.engines.iter().map(pods::contestant).collect(),
            rounds: self.rounds,
        }
    }

    async fn warm_up(&mut self, contestant: usize) -> Result<(), Failure> {
        let engine = &self.engines[contestant];
        let (mut life, pod) = pods::begin(engine, &self.shape, "chaos-warm").await;
        if let Some(pod) = pod {
            life = pods::end(engine, pod).await;
        }
        life.take_failure().map_or(Ok(()), Err)
    }

    async fn turn(&mut self, contestant: usize, round: usize, log: &mut TurnLog) {
        self.kill_one(contestant, Victim::Daemon, round, log).await;
        if self.parts.contains_key(&self.engines[contestant].name) {
            self.kill_one(contestant, Victim::Parents, round, log).await;
        }
    }

    async fn clean_up(&mut self) {
        pods::remove_leftovers(&self.engines, &self.shape).await;
    }
}
