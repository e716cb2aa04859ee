use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use cri_proto::v1::ExecSyncRequest;
use futures_util::future::join_all;
use syscall::process_stat::ProcessStat;
use tokio::time::{MissedTickBehavior, interval_at};

use super::report::Row;
use crate::{
    engine::Engine,
    machine::Counters,
    process::{Processes, zombies},
    statistics::Summary,
};

/// Interval at which zombies are counted. One that is found twice in a row is not about to be reaped.
const ZOMBIE_INTERVAL: Duration = Duration::from_secs(1);
/// Time before the measurement starts.
const SETTLE: Duration = Duration::from_secs(2);

/// The containers to probe, and how.
pub(super) struct Plan {
    pub(super) containers: Vec<String>,
    pub(super) command: Vec<String>,
    pub(super) period: Duration,
    pub(super) length: Duration,
    pub(super) timeout: i64,
    /// Command line of the processes of the pods.
    pub(super) user: String,
}

/// The results of the probes of one container.
#[derive(Default)]
struct Outcome {
    times: Vec<Duration>,
    /// Number of errors by message.
    errors: BTreeMap<String, usize>,
}

/// Probes every container for the duration of the plan. `before` are the processes before the containers were created.
pub(super) async fn run(engine: &Engine, plan: &Plan, before: &Processes) -> Row {
    tokio::time::sleep(SETTLE).await;
    let (processes, counters, client_before) = (Processes::now(), Counters::now(), own_cpu());
    let start = Instant::now();
    let end = start + plan.length;
    let probes = (0..plan.containers.len()).map(|number| probe(engine, plan, number, end));
    let watch = tokio::spawn(count_zombies(end));
    let outcomes = join_all(probes).await;
    let wall = start.elapsed();
    let (counters, after) = (Counters::now().since(counters), Processes::now());
    let client_ms = own_cpu() - client_before;
    let zombies = watch.await.unwrap_or_default();

    let times: Vec<Duration> = outcomes.iter().flat_map(|outcome| outcome.times.iter().copied()).collect();
    let mut errors = BTreeMap::new();
    for (message, count) in outcomes.into_iter().flat_map(|outcome| outcome.errors) {
        *errors.entry(message).or_insert(0) += count;
    }
    let (seconds, probes) = (wall.as_secs_f64(), times.len().max(1) as f64);
    let engine_ms = after.cpu_since(&processes, before, engine.daemon, &plan.user);
    let node_ms = counters.busy_ms.saturating_sub(client_ms);
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
        client_percent: client_ms as f64 / seconds / 10.0,
        forks_per_probe: counters.forks as f64 / probes,
        zombies,
    }
}

/// Probes one container periodically. The probes of all containers are distributed evenly over the period.
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
        let start = Instant::now();
        let result = runtime.exec_sync(request).await.map(tonic::Response::into_inner);
        outcome.times.push(start.elapsed());
        let error = match result {
            Ok(response) if response.exit_code == 0 => continue,
            Ok(response) => format!("exit code {}", response.exit_code),
            Err(status) => format!("{:?}", status.code()),
        };
        *outcome.errors.entry(error).or_insert(0) += 1;
    }
}

/// Returns the number of zombies that were found twice in a row, each counted once.
async fn count_zombies(end: Instant) -> usize {
    let (mut before, mut persistent) = (BTreeSet::new(), BTreeSet::new());
    while Instant::now() < end {
        tokio::time::sleep(ZOMBIE_INTERVAL).await;
        #[expect(clippy::disallowed_methods, reason = "no other task of this program is delayed")]
        let now = tokio::task::spawn_blocking(zombies).await.unwrap_or_default();
        persistent.extend(now.intersection(&before).copied());
        before = now;
    }
    persistent.len()
}

/// Returns the CPU time of this program in milliseconds, which is subtracted from that of the node.
fn own_cpu() -> u64 {
    let stat = ProcessStat::read(rustix::process::getpid());
    let ticks = stat.map_or(0, |stat| stat.user_ticks + stat.system_ticks);
    ticks * 1000 / rustix::param::clock_ticks_per_second()
}
