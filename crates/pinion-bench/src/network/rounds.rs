//! Rounds: in each, all engines are measured once, one after the other.

use super::{
    Arguments, Load, Pair,
    bed::{self, Bed},
    image::Image,
    meters::{Processors, Protocol, latency, stress, throughput},
    report::{Case, Run, Series},
};
use crate::engine::Failure;

/// Measures all engines with one pair of drivers.
pub(super) fn measure(arguments: &Arguments, pair: Pair, loads: &[Load]) -> Result<Vec<Case>, Failure> {
    let processors = Processors::choose()?;
    let image = Image::build(&arguments.busybox)?;
    let mut beds = Vec::new();
    for engine in &arguments.engine {
        eprintln!("{}: start {engine}", pair.drivers());
        let bed = bed::start(arguments, *engine, pair, &image);
        beds.push(bed.inspect_err(|error| eprintln!("{}: {engine}: {error}", pair.drivers())));
    }
    let mut cases = Vec::new();
    for load in loads {
        let series = arguments.engine.iter().zip(&beds).map(|(engine, bed)| {
            let cause = bed.as_ref().err().map(ToString::to_string);
            Series { engine: *engine, not_measured: cause, runs: Vec::new() }
        });
        cases.push(Case { pair, load: *load, series: series.collect() });
    }
    for round in 0..arguments.runs {
        eprintln!("{}: round {} of {}", pair.drivers(), round + 1, arguments.runs);
        for case in &mut cases {
            for position in 0..beds.len() {
                let index = (position + round) % beds.len();
                if let Ok(bed) = &beds[index] {
                    let run = measure_one(bed, case.load, processors, arguments.seconds);
                    run.failures().for_each(|failure| eprintln!("{}: {failure}", case.series[index].engine));
                    case.series[index].runs.push(run);
                }
            }
        }
    }
    Ok(cases)
}

fn measure_one(bed: &Bed, load: Load, processors: Processors, seconds: u64) -> Run {
    let stressor = match load {
        Load::Idle => None,
        Load::Stressed => Some(stress(bed, processors)),
    };
    if let Some(Err(error)) = &stressor {
        let failed = || error.to_string();
        return Run { throughput: Err(failed()), tcp: Err(failed()), udp: Err(failed()) };
    }
    let text = |error: Failure| error.to_string();
    Run {
        throughput: throughput(bed, processors, seconds).map_err(text),
        tcp: latency(bed, processors, seconds, Protocol::Tcp).map_err(text),
        udp: latency(bed, processors, seconds, Protocol::Udp).map_err(text),
    }
}
