//! Runs the contestants in turn: in each round a batch of containers each, with a rotating order.

use std::time::{Duration, Instant};

use super::{contestant::Contestants, report::Row};
use crate::{engine::Failure, machine::Counters, statistics::Summary};

#[derive(Clone, Default)]
struct Tally {
    times: Vec<Duration>,
    wall: Duration,
    counters: Counters,
    errors: usize,
    last_error: Option<String>,
}

/// Runs `runs` containers of each contestant, `batch` at a turn. Failed containers are counted.
pub(crate) async fn run(contestants: &mut Contestants, runs: usize, batch: usize) -> Result<Vec<Row>, Failure> {
    let count = contestants.len();
    let mut tallies = vec![Tally::default(); count];
    for round in 0..runs.div_ceil(batch) {
        let size = batch.min(runs - round * batch);
        for turn in 0..count {
            // The first contestant rotates, so that none always follows the same one.
            let index = (round + turn) % count;
            run_batch(contestants, index, size, &mut tallies[index]).await?;
        }
    }
    Ok(tallies.into_iter().enumerate().map(|(index, tally)| tally.row(contestants.describe(index))).collect())
}

async fn run_batch(contestants: &mut Contestants, index: usize, size: usize, tally: &mut Tally) -> Result<(), Failure> {
    let before = Counters::after_sync();
    let start = Instant::now();
    for _ in 0..size {
        match contestants.run_true(index).await? {
            Ok(time) => tally.times.push(time),
            Err(error) => {
                tally.errors += 1;
                tally.last_error = Some(error);
            }
        }
    }
    tally.wall += start.elapsed();
    tally.counters += Counters::after_sync().since(before);
    Ok(())
}

impl Tally {
    fn row(self, (name, version, is_engine): (String, String, bool)) -> Row {
        let runs = (self.times.len() + self.errors).max(1) as f64;
        Row {
            name,
            version,
            is_engine,
            times: Summary::of(&self.times),
            errors: self.errors,
            last_error: self.last_error,
            total_s: self.wall.as_secs_f64(),
            cpu_ms: self.counters.busy_ms as f64 / runs,
            forks: self.counters.forks as f64 / runs,
            disk_kib: self.counters.written as f64 / runs / 1024.0,
            memory_kib: None,
        }
    }
}
