//! Runs a scenario: in each round every contestant has one turn.

mod interrupt;
mod progress;
mod reference;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use crate::{
    engine::Failure,
    machine::Machine,
    note::note,
    results::{Description, FORMAT, Head, Recorder, Results, Turn, TurnLog},
};
use interrupt::Interrupt;
use progress::Progress;

/// How long the removal of what is left over may take at the end of a run.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(600);

/// Work that every contestant does in turn.
pub(crate) trait Scenario {
    /// Describes the work and its contestants.
    fn description(&self) -> Description;

    /// Prepares a contestant. What this measures is not recorded.
    async fn warm_up(&mut self, contestant: usize) -> Result<(), Failure>;

    /// Measures a contestant. Failures are recorded next to the measurements, and the run continues.
    async fn turn(&mut self, contestant: usize, round: usize, log: &mut TurnLog);

    /// Removes what the turns left.
    async fn clean_up(&mut self);
}

/// Options of all scenarios.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Record all samples in this file, as JSON lines. An interrupted run can be resumed from it (`pinion-bench resume FILE`), and
    /// reports be made of it (`pinion-bench report FILE`).
    #[arg(long, value_name = "FILE", overrides_with = "results")]
    results: Option<PathBuf>,
    /// Write a report for browsers to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the medians of all rows to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// What readers must know about a contestant, NAME=TEXT, such as a wrapper of its runtime; may be repeated.
    #[arg(long = "remark", value_name = "NAME=TEXT")]
    remarks: Vec<String>,
    /// Title of the results in reports, which usually is that of the scenario.
    #[arg(long)]
    title: Option<String>,
    /// The command that repeats this run, in reports, where it is not that of the run itself (used internally by `make bench`).
    #[arg(long, hide = true)]
    repeat: Option<String>,
    /// Continue the run that was recorded in --results (used internally by `resume`).
    #[arg(long, hide = true, requires = "results")]
    resume: bool,
}

impl Options {
    /// Returns the files that the run writes.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.results, &self.html, &self.json].into_iter().flatten().map(PathBuf::as_path)
    }
}

/// Runs all rounds, or those that are missing in a run that is resumed. An interrupt ends the run after the current turn.
pub(crate) async fn drive(scenario: &mut impl Scenario, options: &Options) -> Result<Results, Failure> {
    let mut description = scenario.description();
    if let Some(title) = &options.title {
        description.title.clone_from(title);
    }
    for (name, remark) in options.remarks.iter().filter_map(|remark| remark.split_once('=')) {
        for contestant in description.contestants.iter_mut().filter(|contestant| contestant.name == name) {
            contestant.configuration = format!("{}; {remark}", contestant.configuration);
        }
    }
    let names: BTreeSet<&str> = description.contestants.iter().map(|contestant| contestant.name.as_str()).collect();
    if names.len() != description.contestants.len() {
        return Err(Failure("two contestants have the same name".to_owned()));
    }
    let (rounds, contestants) = (description.rounds, description.contestants.len());
    let mut progress = Progress::new(&description);
    let mut recorder = recorder(description, options)?;
    let interrupt = Interrupt::listen()?;
    let missing: Vec<(usize, usize)> = (0..rounds)
        .flat_map(|round| (0..contestants).map(move |turn| (round, contestant_of(round, turn, contestants))))
        .filter(|(round, contestant)| !recorder.results().has(*contestant, *round))
        .collect();
    for contestant in 0..contestants {
        if missing.iter().any(|(_, missing)| *missing == contestant) && !interrupt.is_requested() {
            progress.warm_up(contestant);
            tokio::select! {
                // Its turns record what fails.
                prepared = scenario.warm_up(contestant) => if let Err(failure) = prepared {
                    note(&format!("pinion-bench: warm up: {failure}"));
                },
                () = interrupt.repeated() => break,
            }
        }
    }
    progress.begin(missing.len());
    let recorded = turns(scenario, &missing, (&mut recorder, &mut progress, &interrupt)).await;
    tokio::select! {
        _ = tokio::time::timeout(CLEANUP_TIMEOUT, scenario.clean_up()) => {}
        () = interrupt.repeated() => {}
    }
    progress.end();
    if let Err(failure) = recorded {
        // What was measured is reported all the same.
        let cause = format!("{failure}; make room, and continue it with `pinion-bench resume`");
        return Ok(Results { failure: Some(cause), ..recorder.into_results() });
    }
    Ok(recorder.into_results())
}

/// Lets the contestants have their turns.
async fn turns(
    scenario: &mut impl Scenario,
    missing: &[(usize, usize)],
    (recorder, progress, interrupt): (&mut Recorder, &mut Progress, &Interrupt),
) -> Result<(), Failure> {
    let origin = Instant::now().checked_sub(elapsed(recorder.results())).unwrap_or_else(Instant::now);
    for (round, contestant) in missing.iter().copied() {
        if interrupt.is_requested() {
            break;
        }
        progress.turn(round, contestant);
        // What the previous contestant wrote is not to be written back during this turn.
        rustix::fs::sync();
        let reference_ms = reference::work();
        let at_s = origin.elapsed().as_secs_f64();
        let mut log = TurnLog::default();
        tokio::select! {
            () = scenario.turn(contestant, round, &mut log) => {}
            () = interrupt.repeated() => break,
        }
        recorder.record(Turn { round, contestant, at_s, reference_ms, log })?;
    }
    Ok(())
}

fn recorder(description: Description, options: &Options) -> Result<Recorder, Failure> {
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let directory = std::env::current_dir().map_err(|error| Failure(format!("get the working directory: {error}")))?;
    let command = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let head = Head {
        format: FORMAT,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        started,
        command: command.filter(|word| word != "--resume").collect(),
        directory: directory.to_string_lossy().into_owned(),
        repeat: options.repeat.clone(),
        machine: Machine::here(),
        scenario: description,
    };
    match &options.results {
        Some(path) if options.resume => Recorder::resume(path, &head),
        path => Recorder::create(path.as_deref(), head),
    }
}

/// Returns the time of the last turn that was recorded, from which the times of further ones count.
fn elapsed(results: &Results) -> Duration {
    let last = results.turns.iter().map(|turn| turn.at_s).fold(0.0, f64::max);
    Duration::try_from_secs_f64(last).unwrap_or_default()
}

/// Returns the contestant of a turn: the first one changes after every two rounds, and the direction after each. In twice as many rounds as
/// there are contestants each of them has every place twice.
fn contestant_of(round: usize, turn: usize, contestants: usize) -> usize {
    let place = if round.is_multiple_of(2) { turn } else { contestants - 1 - turn };
    (round / 2 + place) % contestants
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contestant_has_every_place_equally_often() {
        for contestants in 1..6 {
            let mut places = vec![vec![0; contestants]; contestants];
            for round in 0..2 * contestants {
                for turn in 0..contestants {
                    places[contestant_of(round, turn, contestants)][turn] += 1;
                }
            }
            assert!(places.iter().flatten().all(|count| *count == 2), "{contestants}: {places:?}");
        }
    }
}
