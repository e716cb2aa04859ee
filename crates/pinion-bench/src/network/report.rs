//! The measurements, as tables and as plots.

use std::{fmt::Write, fs, path::PathBuf};

use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};

use super::{
    Arguments, Engine, Load, Pair,
    meters::{Latency, Throughput},
};
use crate::{
    engine::Failure,
    machine::Machine,
    plot::{Range, RangeChart},
    statistics::median,
};

/// All measurements.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    machine: Machine,
    seconds: u64,
    runs: usize,
    pub(super) cases: Vec<Case>,
}

/// The engines with one pair of drivers and one load.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Case {
    pub(super) pair: Pair,
    pub(super) load: Load,
    pub(super) series: Vec<Series>,
}

/// The runs of one engine, one for each round.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Series {
    pub(super) engine: Engine,
    /// Why it was not measured.
    pub(super) not_measured: Option<String>,
    pub(super) runs: Vec<Run>,
}

/// The measurements of one round, or why there is none.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) throughput: Result<Throughput, String>,
    pub(super) tcp: Result<Latency, String>,
    pub(super) udp: Result<Latency, String>,
}

/// A value of a run.
#[derive(Clone, Copy)]
struct Metric {
    name: &'static str,
    is_better_if_higher: bool,
    value: fn(&Run) -> Option<f64>,
}

const THROUGHPUT: Metric = Metric {
    name: "TCP throughput, Gbit/s",
    is_better_if_higher: true,
    value: |run| run.throughput.as_ref().ok().map(|throughput| throughput.gbits),
};
const TCP: Metric = Metric {
    name: "TCP round trip p50, µs",
    is_better_if_higher: false,
    value: |run| run.tcp.as_ref().ok().map(|latency| latency.p50_us),
};
const UDP: Metric = Metric {
    name: "UDP round trip p50, µs",
    is_better_if_higher: false,
    value: |run| run.udp.as_ref().ok().map(|latency| latency.p50_us),
};
const METRICS: [Metric; 5] = [
    THROUGHPUT,
    TCP,
    Metric {
        name: "TCP round trip p99, µs",
        is_better_if_higher: false,
        value: |run| run.tcp.as_ref().ok().map(|latency| latency.p99_us),
    },
    UDP,
    Metric {
        name: "UDP round trip p99, µs",
        is_better_if_higher: false,
        value: |run| run.udp.as_ref().ok().map(|latency| latency.p99_us),
    },
];

impl Run {
    /// Returns why measurements failed.
    pub(super) fn failures(&self) -> impl Iterator<Item = &str> {
        let errors = [self.throughput.as_ref().err(), self.tcp.as_ref().err(), self.udp.as_ref().err()];
        errors.into_iter().flatten().map(String::as_str)
    }
}

impl Series {
    fn values(&self, metric: Metric) -> impl Iterator<Item = f64> {
        self.runs.iter().filter_map(metric.value)
    }

    /// Returns the ratios to another engine, of the rounds in which both were measured.
    fn ratios(&self, other: &Self, metric: Metric) -> Vec<f64> {
        let pairs = self.runs.iter().zip(&other.runs);
        pairs.filter_map(|(one, two)| Some((metric.value)(one)? / (metric.value)(two)?)).collect()
    }

    fn failures(&self) -> usize {
        self.runs.iter().map(|run| run.failures().count()).sum()
    }
}

impl Report {
    pub(super) fn new(machine: Machine, arguments: &Arguments) -> Self {
        Self { machine, seconds: arguments.seconds, runs: arguments.runs, cases: Vec::new() }
    }

    /// Reads reports of this machine with equal settings, as one.
    pub(super) fn read(files: &[PathBuf]) -> Result<Self, Failure> {
        let mut merged: Option<Self> = None;
        for file in files {
            let fail = |reason: String| Failure(format!("read {}: {reason}", file.display()));
            let text = fs::read(file).map_err(|e| fail(e.to_string()))?;
            let report: Self = serde_json::from_slice(&text).map_err(|e| fail(e.to_string()))?;
            let Some(all) = &mut merged else {
                merged = Some(report);
                continue;
            };
            if (&all.machine, all.seconds, all.runs) != (&report.machine, report.seconds, report.runs) {
                return Err(fail("the machine, the duration or the number of runs is another one".to_owned()));
            }
            all.cases.retain(|case| !report.cases.iter().any(|new| new.pair == case.pair));
            all.cases.extend(report.cases);
        }
        let mut merged = merged.ok_or_else(|| Failure("no file to read".to_owned()))?;
        merged.cases.sort_by_key(|case| Pair::ALL.iter().position(|pair| *pair == case.pair));
        Ok(merged)
    }

    /// Returns a table for each metric.
    pub(super) fn tables(&self) -> String {
        let mut text = format!("{}\n{} runs of {} s each\n", self.machine.line(), self.runs, self.seconds);
        for metric in METRICS {
            let _ = writeln!(text, "\n{}: median [minimum–maximum]\n{}", metric.name, self.table(metric));
        }
        let _ = writeln!(text, "\nErrors\n{}", self.failures());
        text
    }

    fn table(&self, metric: Metric) -> Table {
        let engines = self.engines();
        let mut header = vec!["client, server".to_owned(), "load".to_owned()];
        header.extend(engines.iter().map(ToString::to_string));
        for other in engines.iter().skip(1) {
            header.push(format!("{} / {other} [quartiles]", engines[0]));
            header.push("worse in".to_owned());
        }
        let rows = self.cases.iter().map(|case| {
            let mut row = vec![case.pair.drivers().to_owned(), case.load.name().to_owned()];
            row.extend(case.series.iter().map(|series| range(&series.values(metric).collect::<Vec<_>>())));
            for other in case.series.iter().skip(1) {
                row.extend(compare(&case.series[0].ratios(other, metric), metric));
            }
            row
        });
        table(header, rows)
    }

    fn failures(&self) -> Table {
        let mut header = vec!["client, server".to_owned(), "load".to_owned()];
        header.extend(self.engines().iter().map(ToString::to_string));
        let rows = self.cases.iter().map(|case| {
            let mut row = vec![case.pair.drivers().to_owned(), case.load.name().to_owned()];
            row.extend(case.series.iter().map(|series| match &series.not_measured {
                Some(cause) => format!("not measured: {cause}"),
                None => format!("{} of {}", series.failures(), 3 * series.runs.len()),
            }));
            row
        });
        table(header, rows)
    }

    fn engines(&self) -> Vec<Engine> {
        self.cases.first().map(|case| case.series.iter().map(|series| series.engine).collect()).unwrap_or_default()
    }

    /// Returns the plots, with the names that their files end in.
    pub(super) fn charts(&self) -> Vec<(&'static str, RangeChart)> {
        let plots = [
            ("throughput", THROUGHPUT, "Throughput of one TCP stream"),
            ("tcp", TCP, "TCP round trip of 64 bytes"),
            ("udp", UDP, "UDP round trip of 64 bytes"),
        ];
        plots.map(|(name, metric, title)| (name, self.chart(metric, title))).into()
    }

    fn chart(&self, metric: Metric, title: &str) -> RangeChart {
        let mut ranges = Vec::new();
        for case in &self.cases {
            for series in &case.series {
                let values: Vec<f64> = series.values(metric).collect();
                let row = format!("{}, {}", case.pair.drivers(), case.load.name());
                ranges.push(Range { row, series: series.engine.to_string(), values });
            }
        }
        RangeChart { title: format!("{title}: each run, and the median"), axis: metric.name.to_owned(), ranges }
    }
}

/// Formats the median and the extremes.
fn range(values: &[f64]) -> String {
    if values.is_empty() {
        return "–".to_owned();
    }
    let digits = if median(values.iter().copied()) < 100.0 { 1 } else { 0 };
    let (min, max) = values.iter().fold((f64::INFINITY, 0.0), |(min, max): (f64, f64), v| (min.min(*v), max.max(*v)));
    format!("{:.digits$} [{min:.digits$}–{max:.digits$}]", median(values.iter().copied()))
}

/// Formats the median and the quartiles of ratios, and in how many rounds the first engine was worse.
fn compare(ratios: &[f64], metric: Metric) -> [String; 2] {
    if ratios.is_empty() {
        return ["–".to_owned(), "–".to_owned()];
    }
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let quartile = |part: usize| sorted[(sorted.len() - 1) * part / 4];
    let worse = ratios.iter().filter(|ratio| if metric.is_better_if_higher { **ratio < 1.0 } else { **ratio > 1.0 });
    [
        format!("{:.2} [{:.2}–{:.2}]", median(ratios.iter().copied()), quartile(1), quartile(3)),
        format!("{} of {}", worse.count(), ratios.len()),
    ]
}

fn table(header: Vec<String>, rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header).add_rows(rows);
    table.column_iter_mut().skip(2).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(engine: Engine, values: &[Option<f64>]) -> Series {
        let run = |value: &Option<f64>| Run {
            throughput: value.map(|gbits| Throughput { gbits, retransmits: 0 }).ok_or_else(|| "refused".to_owned()),
            tcp: Err("refused".to_owned()),
            udp: Ok(Latency { min_us: 1.0, p50_us: 2.0, p99_us: 3.0, dropped: 0 }),
        };
        Series { engine, not_measured: None, runs: values.iter().map(run).collect() }
    }

    #[test]
    fn ratios_are_of_runs_of_the_same_round_and_failures_are_counted() {
        let one = series(Engine::Pinion, &[Some(10.0), None, Some(12.0), Some(9.0)]);
        let two = series(Engine::Docker, &[Some(20.0), Some(5.0), Some(10.0), Some(10.0)]);
        assert_eq!(one.ratios(&two, THROUGHPUT), [0.5, 1.2, 0.9]);
        assert_eq!((one.failures(), two.failures()), (5, 4));
        assert_eq!(compare(&one.ratios(&two, THROUGHPUT), THROUGHPUT), ["0.90 [0.50–0.90]", "2 of 3"]);
        assert_eq!(compare(&one.ratios(&two, UDP), UDP)[1], "0 of 4");
        assert_eq!(compare(&one.ratios(&two, TCP), TCP), ["–", "–"]);
    }

    #[test]
    fn reports_of_several_runs_are_read_as_one() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, runs: usize, pairs: &[(Pair, f64)]| {
            let case = |(pair, value): &(Pair, f64)| Case {
                pair: *pair,
                load: Load::Idle,
                series: vec![series(Engine::Pinion, &[Some(*value)])],
            };
            let report = Report { machine: Machine::here(), seconds: 1, runs, cases: pairs.iter().map(case).collect() };
            let path = directory.path().join(name);
            fs::write(&path, serde_json::to_vec(&report).unwrap()).unwrap();
            path
        };
        let first = write("first", 15, &[(Pair::Overlay, 1.0), (Pair::Host, 2.0)]);
        let second = write("second", 15, &[(Pair::Bridge, 3.0), (Pair::Host, 4.0)]);
        let report = Report::read(&[first.clone(), second]).unwrap();
        let value = |case: &Case| case.series[0].values(THROUGHPUT).next().unwrap();
        let cases: Vec<_> = report.cases.iter().map(|case| (case.pair, value(case))).collect();
        assert_eq!(cases, [(Pair::Bridge, 3.0), (Pair::Host, 4.0), (Pair::Overlay, 1.0)]);
        let other = write("other", 3, &[(Pair::Bridge, 1.0)]);
        assert!(Report::read(&[first, other]).unwrap_err().to_string().contains("number of runs"));
    }

    #[test]
    fn a_range_has_few_digits() {
        assert_eq!(range(&[3.0, 1.0, 2.26]), "2.3 [1.0–3.0]");
        assert_eq!(range(&[1000.4, 150.0, 90.0]), "150 [90–1000]");
        assert_eq!(range(&[]), "–");
    }
}
