use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use serde::Serialize;

use super::{Shape, life};
use crate::{
    engine::{Engine, Failure},
    machine::Counters,
    statistics::Summary,
};

/// One mode, every engine.
#[derive(Debug, Serialize)]
pub(crate) struct Mode {
    /// Pods at a time.
    pub(crate) in_flight: usize,
    /// In the order of the engines.
    pub(crate) engines: Vec<Row>,
}

/// One engine in one mode.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Row {
    /// Per step, in the order of [`life::STEPS`].
    pub(crate) steps: Vec<Summary>,
    /// From the first request to the last answer of one pod.
    pub(crate) whole: Summary,
    /// All pods of the mode, seconds.
    pub(crate) wall_s: f64,
    /// Per pod: processes and threads that were made, on the whole machine.
    pub(crate) forks: f64,
    /// Per pod: CPU time of the whole machine, milliseconds.
    pub(crate) cpu_ms: f64,
    /// Per pod: bytes written to disks.
    pub(crate) disk_bytes: f64,
}

#[derive(Default)]
struct Tally {
    lives: Vec<life::Times>,
    wall: Duration,
    counters: Counters,
}

/// Runs `pods` lives per engine, `in_flight` at a time; the engines take turns batch by batch.
pub(crate) async fn run(engines: &[Engine], shape: &Shape, pods: usize, in_flight: usize) -> Result<Mode, Failure> {
    // Serially, a batch is a few pods long, so that syncing the disk between batches does not drown the rest.
    let batch = if in_flight == 1 { 5.min(pods) } else { in_flight.min(pods) };
    let batches = pods.div_ceil(batch);
    let mut tallies: Vec<Tally> = engines.iter().map(|_| Tally::default()).collect();
    for round in 0..batches {
        // Another engine goes first each time, so that none always follows the same one.
        for turn in 0..engines.len() {
            let at = (round + turn) % engines.len();
            one_batch(&engines[at], shape, &mut tallies[at], (round, batch, in_flight)).await?;
        }
    }
    Ok(Mode { in_flight, engines: tallies.into_iter().map(Tally::row).collect() })
}

async fn one_batch(
    engine: &Engine,
    shape: &Shape,
    tally: &mut Tally,
    (round, batch, in_flight): (usize, usize, usize),
) -> Result<(), Failure> {
    let before = Counters::settled();
    let start = Instant::now();
    let names: Vec<String> = (0..batch).map(|number| format!("{in_flight}-{round}-{number}")).collect();
    if in_flight == 1 {
        for name in &names {
            tally.lives.push(life::live(engine, shape, name).await?);
        }
    } else {
        tally.lives.extend(try_join_all(names.iter().map(|name| life::live(engine, shape, name))).await?);
    }
    tally.wall += start.elapsed();
    tally.counters += Counters::settled().since(before);
    Ok(())
}

impl Tally {
    fn row(self) -> Row {
        let pods = self.lives.len().max(1) as f64;
        let step = |index: usize| Summary::of(&self.lives.iter().map(|times| times[index]).collect::<Vec<_>>());
        let whole: Vec<Duration> = self.lives.iter().map(|times| times.iter().sum()).collect();
        Row {
            steps: (0..life::STEPS.len()).map(step).collect(),
            whole: Summary::of(&whole),
            wall_s: self.wall.as_secs_f64(),
            forks: self.counters.forks as f64 / pods,
            cpu_ms: self.counters.busy_ms as f64 / pods,
            disk_bytes: self.counters.written as f64 / pods,
        }
    }
}
