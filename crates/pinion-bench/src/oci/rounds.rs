//! Runs the runtimes in turn: in each round every runtime once, with a rotating order.

use std::{io, path::Path, time::Duration};

use serde::Serialize;

use super::{
    Contestant,
    runner::{Runner, RunnerArguments, Sample},
};
use crate::statistics::Summary;

/// The cost of one kind of command for a runtime.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Cost {
    pub(crate) wall: Summary,
    pub(crate) cpu: Summary,
    pub(crate) errors: usize,
}

impl Cost {
    fn of(samples: &[Sample]) -> Self {
        let successful: Vec<&Sample> = samples.iter().filter(|sample| sample.code == 0).collect();
        let micros = |value: f64| Duration::from_secs_f64(value / 1e6);
        Self {
            wall: Summary::of(&successful.iter().map(|sample| micros(sample.wall_us)).collect::<Vec<_>>()),
            cpu: Summary::of(&successful.iter().map(|sample| Duration::from_micros(sample.cpu_us)).collect::<Vec<_>>()),
            errors: samples.len() - successful.len(),
        }
    }
}

/// Calls `each` once per round and contestant. The contestant that is first rotates.
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

/// Measures `run true`, each after an idle time in milliseconds.
pub(crate) fn runs(
    contestants: &mut [Contestant],
    work_dir: &Path,
    (rounds, idle_ms): (usize, u64),
) -> io::Result<Vec<Option<Cost>>> {
    in_turn(contestants, rounds, |contestant, round| {
        let id = format!("bench-{round}");
        let words = contestant.runtime.run(&contestant.bundle(work_dir), &contestant.group, &id);
        contestant.runner.run(words, idle_ms).map(Some)
    })
}

/// Measures `exec true` in a running container.
pub(crate) fn commands(
    contestants: &mut [Contestant],
    work_dir: &Path,
    rounds: usize,
) -> io::Result<Vec<Option<Cost>>> {
    for contestant in contestants.iter_mut().filter(|contestant| contestant.runtime.is_oci()) {
        let bundle = contestant.sleeper(work_dir).to_string_lossy().into_owned();
        contestant.must(&["run", "--detach", "--bundle", &bundle, "bench-exec"])?;
    }
    let measured = in_turn(contestants, rounds, |contestant, _| {
        if !contestant.runtime.is_oci() {
            return Ok(None);
        }
        contestant.runner.run(contestant.runtime.command(&["exec", "bench-exec", "true"]), 0).map(Some)
    });
    for contestant in contestants.iter_mut().filter(|contestant| contestant.runtime.is_oci()) {
        contestant.must(&["delete", "--force", "bench-exec"])?;
    }
    measured
}

/// The commands of a container's life cycle, in their order.
pub(crate) const LIFECYCLE: [&str; 5] = ["create", "start", "state", "kill", "delete"];

/// Measures create, start, state, kill and delete of a container that sleeps. Returns a row per command.
pub(crate) fn lifecycles(
    contestants: &mut [Contestant],
    work_dir: &Path,
    rounds: usize,
) -> io::Result<Vec<Vec<Option<Cost>>>> {
    let mut samples = vec![vec![Vec::new(); contestants.len()]; LIFECYCLE.len()];
    for round in 0..rounds {
        for (index, contestant) in contestants.iter_mut().enumerate() {
            if !contestant.runtime.is_oci() {
                continue;
            }
            for (step, sample) in lifecycle(contestant, work_dir, round)?.into_iter().enumerate() {
                samples[step][index].push(sample);
            }
        }
    }
    let cost = |samples: Vec<Sample>| (!samples.is_empty()).then(|| Cost::of(&samples));
    Ok(samples.into_iter().map(|step| step.into_iter().map(cost).collect()).collect())
}

fn lifecycle(contestant: &mut Contestant, work_dir: &Path, round: usize) -> io::Result<Vec<Sample>> {
    let id = format!("bench-life-{round}");
    let bundle = contestant.sleeper(work_dir).to_string_lossy().into_owned();
    let mut samples = vec![
        contestant.must(&["create", "--bundle", &bundle, &id])?,
        contestant.must(&["start", &id])?,
        contestant.must(&["state", &id])?,
        contestant.must(&["kill", &id, "KILL"])?,
    ];
    // Engines are notified of the exit of a container. Here `delete` is repeated until it succeeds; failed attempts are
    // not measured.
    let mut result = Err(io::Error::other("not deleted"));
    for _ in 0..200 {
        result = contestant.must(&["delete", &id]);
        if result.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    samples.push(result?);
    Ok(samples)
}

/// Measures `run true` with additional mounts in the mount namespace of the runner.
pub(crate) fn under_mounts(
    contestants: &mut [Contestant],
    work_dir: &Path,
    (mounts, rounds): (usize, usize),
) -> io::Result<Vec<Option<Cost>>> {
    let directory = work_dir.join("mounts");
    std::fs::create_dir_all(&directory)?;
    let mut runners = Vec::new();
    for contestant in contestants.iter_mut() {
        let arguments = RunnerArguments {
            hide_v2: contestant.hide_v2,
            states: super::states(work_dir)?,
            mounts,
            place: Some(directory.clone()),
        };
        let errors = work_dir.join(format!("{}.errors", contestant.runtime.name));
        runners.push(std::mem::replace(&mut contestant.runner, Runner::start(&arguments, errors)?));
    }
    // The first runs set up the mounts and the state that a runtime caches.
    runs(contestants, work_dir, (2, 0))?;
    let measured = runs(contestants, work_dir, (rounds, 0));
    for (contestant, runner) in contestants.iter_mut().zip(runners) {
        contestant.runner = runner;
    }
    measured
}
