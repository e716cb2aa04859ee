//! Results of a scenario, as a file of JSON lines: a head that describes the run, and a line for each turn of a
//! contestant. A line is written when its turn is complete, so that an interrupted run loses at most one turn.

mod file;
mod turn;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use file::{Recorder, Results, read};
pub(crate) use turn::{Turn, TurnLog, printable, printable_lines};

use crate::machine::Machine;

/// Version of the format of the file.
pub(crate) const FORMAT: u32 = 1;
/// Longest version of a contestant, in characters.
const VERSION_MAX: usize = 200;

/// The first line of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// Version of the format, [`FORMAT`].
    pub(crate) format: u32,
    /// Version of this program.
    pub(crate) tool: String,
    /// Start of the run, in seconds since 1970.
    pub(crate) started: u64,
    /// Command line of the run.
    pub(crate) command: Vec<String>,
    /// Its working directory.
    pub(crate) directory: String,
    /// Command that repeats the run, if that is another one.
    #[serde(default)]
    pub(crate) repeat: Option<String>,
    /// The machine on which it ran.
    pub(crate) machine: Machine,
    /// The work, and the contestants that did it.
    pub(crate) scenario: Description,
}

/// A description of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Description {
    /// Name of the subcommand.
    pub(crate) name: String,
    /// A title for readers.
    pub(crate) title: String,
    /// The work of a turn, in a sentence.
    pub(crate) work: String,
    /// Noun for the parameter of measurements, such as "pods at a time"; empty if there is none.
    pub(crate) parameter: String,
    /// Title of the rows without a parameter.
    pub(crate) common: String,
    /// Settings that affect the results.
    pub(crate) settings: BTreeMap<String, String>,
    /// The metrics, in the order of their rows.
    pub(crate) metrics: Vec<Metric>,
    /// The contestants. Ratios are those of the first one to each other one.
    pub(crate) contestants: Vec<Contestant>,
    /// Number of rounds. Each contestant has one turn in a round.
    pub(crate) rounds: usize,
}

/// Something that is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Metric {
    /// Name of its row.
    pub(crate) name: String,
    /// Its unit; empty for a number.
    pub(crate) unit: String,
    /// Whether a lower or a higher value is better.
    pub(crate) better: Better,
    /// Whether it answers the question of the scenario.
    pub(crate) is_headline: bool,
    /// A difference up to this one is none, in the unit of the metric.
    pub(crate) resolution: f64,
    /// Nor is one up to this share of a value.
    #[serde(default)]
    pub(crate) resolution_share: f64,
}

/// Which of two values is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    /// The lower one.
    Lower,
    /// The higher one.
    Higher,
}

/// An engine, a runtime or a driver that is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contestant {
    /// Name in the tables.
    pub(crate) name: String,
    /// The version that it reports.
    pub(crate) version: String,
    /// How it is configured and reached.
    pub(crate) configuration: String,
}

impl Contestant {
    /// Creates a contestant. The version may be what a program printed.
    pub(crate) fn new(name: &str, version: &str, configuration: &str) -> Self {
        let (name, version) = (name.to_owned(), printable(version, VERSION_MAX));
        Self { name, version, configuration: configuration.to_owned() }
    }
}

impl Metric {
    /// Creates a metric of which a lower value is better.
    pub(crate) fn lower(name: &str, unit: &str) -> Self {
        Self {
            name: name.to_owned(),
            unit: unit.to_owned(),
            better: Better::Lower,
            is_headline: false,
            resolution: 0.0,
            resolution_share: 0.0,
        }
    }

    /// Makes it one that answers the question of the scenario.
    pub(crate) fn headline(self) -> Self {
        Self { is_headline: true, ..self }
    }

    /// Makes it one of which a difference up to `resolution`, or up to a share of the value, is none.
    pub(crate) fn with_resolution(self, resolution: f64, resolution_share: f64) -> Self {
        Self { resolution, resolution_share, ..self }
    }

    /// Returns the largest difference to a value that is none.
    pub(crate) fn tolerance(&self, value: f64) -> f64 {
        self.resolution.max(self.resolution_share * value.abs())
    }

    /// Returns its name and unit.
    pub(crate) fn label(&self) -> String {
        if self.unit.is_empty() { self.name.clone() } else { format!("{}, {}", self.name, self.unit) }
    }
}
