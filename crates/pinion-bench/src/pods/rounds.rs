use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use serde::Serialize;

use super::{Shape, lifecycle};
use crate::{
    engine::{Engine, Failure},
    machine::Counters,
    statistics::Summary,
};

/// The measurements of all engines in one mode.
#[derive(Debug, Serialize)]
pub(crate) struct Mode {
    /// Number of concurrent pods.
    pub(crate) in_flight: usize,
    /// Rows in the order of the engines.
    pub(crate) engines: Vec<Row>,
}

/// The measurements of one engine in one mode.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Row {
    /// Times of each step, in the order of [`lifecycle::STEPS`].
    pub(crate) steps: Vec<Summary>,
    /// Time from the first request to the last response for one pod.
    pub(crate) whole: Summary,
    /// Total time of all pods in seconds.
    pub(crate) wall_s: f64,
    /// Processes and threads created on the whole machine, per pod.
    pub(crate) forks: f64,
    /// CPU time of the whole machine in milliseconds, per pod.
    pub(crate) cpu_ms: f64,
    /// Bytes written to disks, per pod.
    pub(crate) disk_bytes: f64,
}

#[derive(Default)]
struct Tally {
    pods: Vec<lifecycle::Times>,
    wall: Duration,
    counters: Counters,
}

/// Runs `pods` pods per engine, `in_flight` at a time. The engines are used in turn, batch by batch.
pub(crate) async fn run(engines: &[Engine], shape: &Shape, pods: usize, in_flight: usize) -> Result<Mode, Failure> {
    // A serial batch is several pods long, so that the sync between batches does not dominate.
    let batch = if in_flight == 1 { 5.min(pods) } else { in_flight.min(pods) };
    let batches = pods.div_ceil(batch);
    let mut tallies: Vec<Tally> = engines.iter().map(|_| Tally::default()).collect();
    for round in 0..batches {
        // The first engine rotates, so that no engine always follows the same one.
        for turn in 0..engines.len() {
            let index = (round + turn) % engines.len();
            run_batch(&engines[index], shape, &mut tallies[index], (round, batch, in_flight)).await?;
        }
    }
    Ok(Mode { in_flight, engines: tallies.into_iter().map(Tally::row).collect() })
}

async fn run_batch(
    engine: &Engine,
    shape: &Shape,
    tally: &mut Tally,
    (round, batch, in_flight): (usize, usize, usize),
) -> Result<(), Failure> {
    let before = Counters::after_sync();
    let start = Instant::now();
    let names: Vec<String> = (0..batch).map(|number| format!("{in_flight}-{round}-{number}")).collect();
    if in_flight == 1 {
        for name in &names {
            tally.pods.push(lifecycle::run(engine, shape, name).await?);
        }
    } else {
        tally.pods.extend(try_join_all(names.iter().map(|name| lifecycle::run(engine, shape, name))).await?);
    }
    tally.wall += start.elapsed();
    tally.counters += Counters::after_sync().since(before);
    Ok(())
}

impl Tally {
    fn row(self) -> Row {
        let count = self.pods.len().max(1) as f64;
        let step = |index: usize| Summary::of(&self.pods.iter().map(|times| times[index]).collect::<Vec<_>>());
        let whole: Vec<Duration> = self.pods.iter().map(|times| times.iter().sum()).collect();
        Row {
            steps: (0..lifecycle::STEPS.len()).map(step).collect(),
            whole: Summary::of(&whole),
            wall_s: self.wall.as_secs_f64(),
            forks: self.counters.forks as f64 / count,
            cpu_ms: self.counters.busy_ms as f64 / count,
            disk_bytes: self.counters.written as f64 / count,
        }
    }
}
