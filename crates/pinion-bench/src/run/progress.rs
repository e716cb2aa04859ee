use std::time::{Duration, Instant};

use crate::{note::note, results::Description};

/// Shortest time between two reports.
const PERIOD: Duration = Duration::from_secs(1);

/// Reports the progress of a run on standard error, with an estimate of the time left.
#[derive(Debug)]
pub(crate) struct Progress {
    scenario: String,
    contestants: Vec<String>,
    rounds: usize,
    turns: usize,
    done: usize,
    begin: Instant,
    reported: Option<Instant>,
}

impl Progress {
    /// Creates the progress of a run that has not begun.
    pub(crate) fn new(description: &Description) -> Self {
        Self {
            scenario: description.name.clone(),
            contestants: description.contestants.iter().map(|contestant| contestant.name.clone()).collect(),
            rounds: description.rounds,
            turns: 0,
            done: 0,
            begin: Instant::now(),
            reported: None,
        }
    }

    /// Reports that a contestant is prepared.
    pub(crate) fn warm_up(&self, contestant: usize) {
        note(&format!("{}: warm up {}", self.scenario, self.contestants[contestant]));
    }

    /// Begins to measure, with a number of turns.
    pub(crate) fn begin(&mut self, turns: usize) {
        self.turns = turns;
        self.begin = Instant::now();
    }

    /// Reports the begin of a turn, unless another one was reported a moment ago.
    pub(crate) fn turn(&mut self, round: usize, contestant: usize) {
        let is_due = self.reported.is_none_or(|time| time.elapsed() >= PERIOD);
        if is_due {
            self.reported = Some(Instant::now());
            let (name, rounds) = (&self.contestants[contestant], self.rounds);
            note(&format!("{}: round {} of {rounds}, {name}{}", self.scenario, round + 1, self.left()));
        }
        self.done += 1;
    }

    /// Reports the duration of the run.
    pub(crate) fn end(&self) {
        note(&format!("{}: {} turns in {}", self.scenario, self.done, duration(self.begin.elapsed())));
    }

    fn left(&self) -> String {
        if self.done == 0 {
            return String::new();
        }
        let each = self.begin.elapsed().as_secs_f64() / self.done as f64;
        let left = Duration::try_from_secs_f64(each * (self.turns - self.done) as f64).unwrap_or_default();
        format!("; {} left", duration(left))
    }
}

fn duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}
