//! Runs in turn: each round every runtime once, each first as often as the others.

use std::{io, path::Path, time::Duration};

use serde::Serialize;

use super::{
    Contestant,
    runner::{Runner, RunnerArguments, Sample},
};
use crate::statistics::Summary;

/// What a runtime's runs of one kind cost.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Cost {
    pub(crate) wall: Summary,
    pub(crate) cpu: Summary,
    pub(crate) errors: usize,
}

impl Cost {
    fn of(samples: &[Sample]) -> Self {
        let good: Vec<&Sample> = samples.iter().filter(|sample| sample.code == 0).collect();
        let micros = |value: f64| Duration::from_secs_f64(value / 1e6);
        Self {
            wall: Summary::of(&good.iter().map(|sample| micros(sample.wall_us)).collect::<Vec<_>>()),
            cpu: Summary::of(&good.iter().map(|sample| Duration::from_micros(sample.cpu_us)).collect::<Vec<_>>()),
            errors: samples.len() - good.len(),
        }
    }
}

/// `each` once per round and contestant; who begins moves on.
fn in_turn(
    contestants: &mut [Contestant],
    rounds: usize,
    mut each: impl FnMut(&mut Contestant, usize) -> io::Result<Option<Sample>>,
) -> io::Result<Vec<Option<Cost>>> {
    let count = contestants.len();
    let mut samples = vec![Vec::with_capacity(rounds); count];
    for round in 0..rounds {
        for turn in 0..count {
            let index = (round + turn) % count;
            samples[index].extend(each(&mut contestants[index], round)?);
        }
    }
    Ok(samples.iter().map(|samples| (!samples.is_empty()).then(|| Cost::of(samples))).collect())
}

/// `run true`, each after so many milliseconds without work.
pub(crate) fn runs(
    contestants: &mut [Contestant],
    place: &Path,
    (rounds, idle_ms): (usize, u64),
) -> io::Result<Vec<Option<Cost>>> {
    in_turn(contestants, rounds, |contestant, round| {
        let id = format!("bench-{round}");
        let words = contestant.runtime.run(&contestant.bundle(place), &contestant.group, &id);
        contestant.runner.run(words, idle_ms).map(Some)
    })
}

/// `exec true` in a container that runs.
pub(crate) fn commands(contestants: &mut [Contestant], place: &Path, rounds: usize) -> io::Result<Vec<Option<Cost>>> {
    for contestant in contestants.iter_mut().filter(|contestant| contestant.runtime.is_whole()) {
        let bundle = contestant.sleeper(place).to_string_lossy().into_owned();
        contestant.must(&["run", "--detach", "--bundle", &bundle, "bench-exec"])?;
    }
    let measured = in_turn(contestants, rounds, |contestant, _| {
        if !contestant.runtime.is_whole() {
            return Ok(None);
        }
        contestant.runner.run(contestant.runtime.words(&["exec", "bench-exec", "true"]), 0).map(Some)
    });
    for contestant in contestants.iter_mut().filter(|contestant| contestant.runtime.is_whole()) {
        contestant.must(&["delete", "--force", "bench-exec"])?;
    }
    measured
}

/// Commands of a life, in their order.
pub(crate) const LIFE: [&str; 5] = ["create", "start", "state", "kill", "delete"];

/// create, start, state, kill, delete of a container that sleeps: a row per command.
pub(crate) fn lives(contestants: &mut [Contestant], place: &Path, rounds: usize) -> io::Result<Vec<Vec<Option<Cost>>>> {
    let mut samples = vec![vec![Vec::new(); contestants.len()]; LIFE.len()];
    for round in 0..rounds {
        for (index, contestant) in contestants.iter_mut().enumerate() {
            if !contestant.runtime.is_whole() {
                continue;
            }
            for (step, sample) in live(contestant, place, round)?.into_iter().enumerate() {
                samples[step][index].push(sample);
            }
        }
    }
    let cost = |samples: Vec<Sample>| (!samples.is_empty()).then(|| Cost::of(&samples));
    Ok(samples.into_iter().map(|step| step.into_iter().map(cost).collect()).collect())
}

fn live(contestant: &mut Contestant, place: &Path, round: usize) -> io::Result<Vec<Sample>> {
    let id = format!("bench-life-{round}");
    let bundle = contestant.sleeper(place).to_string_lossy().into_owned();
    let mut samples = vec![
        contestant.must(&["create", "--bundle", &bundle, &id])?,
        contestant.must(&["start", &id])?,
        contestant.must(&["state", &id])?,
        contestant.must(&["kill", &id, "KILL"])?,
    ];
    // An engine hears of the end by its own means; here the runtime is asked until it says so, outside of what is
    // timed.
    let mut last = Err(io::Error::other("never deleted"));
    for _ in 0..200 {
        last = contestant.must(&["delete", &id]);
        if last.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    samples.push(last?);
    Ok(samples)
}

/// `run true` with so many mounts more in the runner's mount namespace.
pub(crate) fn under_mounts(
    contestants: &mut [Contestant],
    place: &Path,
    (mounts, rounds): (usize, usize),
) -> io::Result<Vec<Option<Cost>>> {
    let directory = place.join("mounts");
    std::fs::create_dir_all(&directory)?;
    let mut runners = Vec::new();
    for contestant in contestants.iter_mut() {
        let arguments = RunnerArguments {
            hide_v2: contestant.hide_v2,
            states: super::states(place)?,
            mounts,
            place: Some(directory.clone()),
        };
        let errors = place.join(format!("{}.errors", contestant.runtime.name));
        runners.push(std::mem::replace(&mut contestant.runner, Runner::start(&arguments, errors)?));
    }
    // The first makes the mounts, and what a runtime keeps.
    runs(contestants, place, (2, 0))?;
    let measured = runs(contestants, place, (rounds, 0));
    for (contestant, runner) in contestants.iter_mut().zip(runners) {
        contestant.runner = runner;
    }
    measured
}
