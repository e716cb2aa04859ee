use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use cri_proto::v1::ExecSyncRequest;
use futures_util::future::join_all;
use tokio::time::{MissedTickBehavior, interval_at};

use super::report::Row;
use crate::{
    engine::Engine,
    machine::Counters,
    process::{Processes, zombies},
    statistics::Summary,
};

/// Between two looks for zombies: one that is there at both is not about to be reaped.
const LOOK: Duration = Duration::from_secs(1);
/// Let go by before anything counts.
const SETTLE: Duration = Duration::from_secs(2);

/// What is probed, and how.
pub(super) struct Plan {
    pub(super) containers: Vec<String>,
    pub(super) command: Vec<String>,
    pub(super) period: Duration,
    pub(super) length: Duration,
    pub(super) timeout: i64,
    /// Command line of the users' own processes.
    pub(super) user: String,
}

/// What became of one container's probes.
#[derive(Default)]
struct Outcome {
    times: Vec<Duration>,
    /// By what was said.
    errors: BTreeMap<String, usize>,
}

/// Probes every container to the end of the plan; `before` is how the machine was without them.
pub(super) async fn run(engine: &Engine, plan: &Plan, before: &Processes) -> Row {
    tokio::time::sleep(SETTLE).await;
    let (processes, counters, own) = (Processes::now(), Counters::now(), own_cpu());
    let start = Instant::now();
    let end = start + plan.length;
    let probes = (0..plan.containers.len()).map(|number| probe(engine, plan, number, end));
    let watch = tokio::spawn(count_zombies(end));
    let outcomes = join_all(probes).await;
    let wall = start.elapsed();
    let (counters, after) = (Counters::now().since(counters), Processes::now());
    let own = own_cpu() - own;
    let zombies = watch.await.unwrap_or_default();

    let times: Vec<Duration> = outcomes.iter().flat_map(|outcome| outcome.times.iter().copied()).collect();
    let mut errors = BTreeMap::new();
    for (words, count) in outcomes.into_iter().flat_map(|outcome| outcome.errors) {
        *errors.entry(words).or_insert(0) += count;
    }
    let (seconds, probes) = (wall.as_secs_f64(), times.len().max(1) as f64);
    let engine_ms = after.cpu_since(&processes, before, engine.daemon, &plan.user);
    let node_ms = counters.busy_ms.saturating_sub(own);
    Row {
        engine: engine.name.clone(),
        version: engine.version.clone(),
        wanted: (plan.length.as_secs_f64() / plan.period.as_secs_f64()) as usize * plan.containers.len(),
        errors,
        exec_sync: Summary::of(&times),
        node_percent: node_ms as f64 / seconds / 10.0,
        engine_percent: engine_ms as f64 / seconds / 10.0,
        node_ms_per_probe: node_ms as f64 / probes,
        engine_ms_per_probe: engine_ms as f64 / probes,
        client_percent: own as f64 / seconds / 10.0,
        forks_per_probe: counters.forks as f64 / probes,
        zombies,
    }
}

/// One container's probes: evenly between those of the others, one after the other.
async fn probe(engine: &Engine, plan: &Plan, number: usize, end: Instant) -> Outcome {
    let mut outcome = Outcome::default();
    let mut runtime = engine.runtime.clone();
    let offset = plan.period.mul_f64(number as f64 / plan.containers.len() as f64);
    let mut ticks = interval_at(tokio::time::Instant::now() + offset, plan.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if Instant::now() >= end {
            return outcome;
        }
        let request = ExecSyncRequest {
            container_id: plan.containers[number].clone(),
            cmd: plan.command.clone(),
            timeout: plan.timeout,
        };
        let begin = Instant::now();
        let answer = runtime.exec_sync(request).await.map(tonic::Response::into_inner);
        outcome.times.push(begin.elapsed());
        let error = match answer {
            Ok(answer) if answer.exit_code == 0 => continue,
            Ok(answer) => format!("exit code {}", answer.exit_code),
            Err(status) => format!("{:?}", status.code()),
        };
        *outcome.errors.entry(error).or_insert(0) += 1;
    }
}

/// How many zombies were there at two looks in a row, each counted once.
async fn count_zombies(end: Instant) -> usize {
    let (mut before, mut stayed) = (BTreeSet::new(), BTreeSet::new());
    while Instant::now() < end {
        tokio::time::sleep(LOOK).await;
        let now = tokio::task::spawn_blocking(zombies).await.unwrap_or_default();
        stayed.extend(now.intersection(&before).copied());
        before = now;
    }
    stayed.len()
}

/// This program's own CPU time, milliseconds: it is no part of the node's.
fn own_cpu() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    ticks * 1000 / rustix::param::clock_ticks_per_second()
}
