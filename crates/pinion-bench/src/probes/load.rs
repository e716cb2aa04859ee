use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use cri_proto::v1::ExecSyncRequest;
use futures_util::future::join_all;
use syscall::process_stat::ProcessStat;
use tokio::time::{MissedTickBehavior, interval_at};

use crate::{engine::Engine, machine::Counters, process::zombies};

/// Interval at which zombies are counted. One that is found twice in a row is not about to be reaped.
const ZOMBIE_INTERVAL: Duration = Duration::from_secs(1);
/// Time before the measurement starts.
const SETTLE: Duration = Duration::from_secs(2);
/// How much longer than its own timeout a probe is waited for.
const GRACE: Duration = Duration::from_secs(60);

/// How containers are probed.
pub(super) struct Plan {
    pub(super) command: Vec<String>,
    pub(super) period: Duration,
    pub(super) length: Duration,
    /// Timeout of a probe in seconds.
    pub(super) timeout: i64,
}

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Times of the successful probes.
    pub(super) times: Vec<Duration>,
    /// An error for each other probe.
    pub(super) errors: Vec<String>,
    pub(super) wall: Duration,
    /// CPU time of the node without this program, in milliseconds.
    pub(super) node_ms: u64,
    /// Processes and threads created on the node.
    pub(super) forks: u64,
    /// Zombies that were not reaped within a second.
    pub(super) zombies: usize,
}

/// Probes every container for the duration of the plan.
pub(super) async fn run(engine: &Engine, plan: &Plan, containers: &[&str]) -> Load {
    tokio::time::sleep(SETTLE).await;
    let (counters, client_before) = (Counters::now(), own_cpu());
    let start = Instant::now();
    let end = start + plan.length;
    let offset = |number: usize| plan.period.mul_f64(number as f64 / containers.len() as f64);
    let probes = containers.iter().enumerate();
    let probes = probes.map(|(number, container)| probe(engine, plan, (container, offset(number)), end));
    let watch = tokio::spawn(count_zombies(end));
    let outcomes = join_all(probes).await;
    let wall = start.elapsed();
    let (counters, client_ms) = (Counters::now().since(counters), own_cpu() - client_before);
    let mut load = Load {
        wall,
        node_ms: counters.busy_ms.saturating_sub(client_ms),
        forks: counters.forks,
        zombies: watch.await.unwrap_or_default(),
        ..Load::default()
    };
    for (times, errors) in outcomes {
        load.times.extend(times);
        load.errors.extend(errors);
    }
    load
}

/// Probes one container periodically, from an offset on: the probes of all containers are distributed evenly over the period. Returns
/// the times of successful probes, and the errors of the others.
async fn probe(
    engine: &Engine,
    plan: &Plan,
    (container, offset): (&str, Duration),
    end: Instant,
) -> (Vec<Duration>, Vec<String>) {
    let (mut times, mut errors) = (Vec::new(), Vec::new());
    let mut runtime = engine.runtime.clone();
    let mut ticks = interval_at(tokio::time::Instant::now() + offset, plan.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let limit = Duration::from_secs(plan.timeout.max(0).unsigned_abs()) + GRACE;
    loop {
        ticks.tick().await;
        if Instant::now() >= end {
            return (times, errors);
        }
        let (container_id, cmd) = (container.to_owned(), plan.command.clone());
        let request = ExecSyncRequest { container_id, cmd, timeout: plan.timeout };
        let start = Instant::now();
        match tokio::time::timeout(limit, runtime.exec_sync(request)).await {
            Ok(Ok(response)) if response.get_ref().exit_code == 0 => times.push(start.elapsed()),
            Ok(Ok(response)) => errors.push(format!("exit code {}", response.get_ref().exit_code)),
            Ok(Err(status)) => errors.push(format!("{:?}: {}", status.code(), status.message())),
            Err(_) => errors.push(format!("no response in {} s", limit.as_secs())),
        }
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
