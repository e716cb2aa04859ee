use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::{FORMAT, Head, Turn};
use crate::engine::Failure;

/// Most rounds of a run, and its longest duration in seconds.
const ROUNDS_MAX: usize = 1_000_000;
const SECONDS_MAX: f64 = 1e9;

/// A line of a file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Head(Box<Head>),
    Turn(Turn),
}

/// The content of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Results {
    /// The description of the run.
    pub(crate) head: Head,
    /// The turns, in the order in which they ended.
    pub(crate) turns: Vec<Turn>,
    /// Why the run ended early, if it failed.
    pub(crate) failure: Option<String>,
}

impl Results {
    fn new(head: Head) -> Self {
        Self { head, turns: Vec::new(), failure: None }
    }

    /// Returns whether a contestant had its turn in a round.
    pub(crate) fn has(&self, contestant: usize, round: usize) -> bool {
        self.turns.iter().any(|turn| turn.contestant == contestant && turn.round == round)
    }

    /// Returns whether every contestant had its turn in every round.
    pub(crate) fn is_complete(&self) -> bool {
        // None is there twice.
        self.turns.len() == self.head.scenario.rounds * self.head.scenario.contestants.len()
    }
}

/// Records the turns of a run, in a file if one is named.
#[derive(Debug)]
pub(crate) struct Recorder {
    results: Results,
    file: Option<(File, PathBuf)>,
}

impl Recorder {
    /// Starts to record a run. Fails if the file exists.
    pub(crate) fn create(path: Option<&Path>, head: Head) -> Result<Self, Failure> {
        let mut recorder = Self { results: Results::new(head), file: None };
        if let Some(path) = path {
            let file = File::create_new(path).map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => {
                    let path = path.display();
                    Failure(format!("create {path}: it exists; continue it with `pinion-bench resume {path}`"))
                }
                _ => failed("create", path, &error),
            })?;
            lock(&file, path)?;
            recorder.file = Some((file, path.to_owned()));
            let line = Line::Head(Box::new(recorder.results.head.clone()));
            recorder.write(&line).inspect_err(|_| {
                // Without a head it could be neither read nor created again.
                let _ = fs::remove_file(path);
            })?;
        }
        Ok(recorder)
    }

    /// Continues to record a run whose scenario is that of `head`, with the same contestants in the same versions.
    pub(crate) fn resume(path: &Path, head: &Head) -> Result<Self, Failure> {
        let file = File::options().append(true).open(path).map_err(|error| failed("open", path, &error))?;
        lock(&file, path)?;
        let (results, complete_bytes) = parse(path)?;
        if let Some(difference) = difference(&results.head, head) {
            return Err(Failure(format!("resume {}: {difference}; start a new run", path.display())));
        }
        // A line that was cut by a crash would make the following one unreadable.
        file.set_len(complete_bytes).map_err(|error| failed("truncate", path, &error))?;
        Ok(Self { results, file: Some((file, path.to_owned())) })
    }

    /// Returns what was recorded.
    pub(crate) fn results(&self) -> &Results {
        &self.results
    }

    /// Records a turn.
    pub(crate) fn record(&mut self, turn: Turn) -> Result<(), Failure> {
        self.results.turns.push(turn.clone());
        self.write(&Line::Turn(turn))
    }

    /// Returns all results.
    pub(crate) fn into_results(self) -> Results {
        self.results
    }

    fn write(&mut self, line: &Line) -> Result<(), Failure> {
        let Some((file, path)) = &mut self.file else { return Ok(()) };
        let mut text = serde_json::to_vec(line).map_err(|error| failed("encode a line of", path, &error.into()))?;
        text.push(b'\n');
        file.write_all(&text).map_err(|error| failed("write", path, &error))
    }
}

/// Locks a file, so that a run that continues is not recorded twice. The lock ends with the descriptor.
fn lock(file: &File, path: &Path) -> Result<(), Failure> {
    flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
        Errno::WOULDBLOCK => Failure(format!("lock {}: a run is recorded in it", path.display())),
        errno => failed("lock", path, &errno.into()),
    })
}

fn difference(recorded: &Head, current: &Head) -> Option<String> {
    if recorded.machine != current.machine {
        return Some("it was measured on another machine".to_owned());
    }
    if recorded.tool != current.tool {
        return Some(format!("it was measured by pinion-bench {}", recorded.tool));
    }
    let contestants = recorded.scenario.contestants.iter().zip(&current.scenario.contestants);
    for (recorded, current) in contestants {
        if recorded != current {
            return Some(format!("{} was {}, and is {}", recorded.name, recorded.version, current.version));
        }
    }
    (recorded.scenario != current.scenario).then(|| "its settings or contestants were others".to_owned())
}

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<Results, Failure> {
    parse(path).map(|(results, _)| results)
}

/// Returns the content of a file, and the length of its complete lines.
fn parse(path: &Path) -> Result<(Results, u64), Failure> {
    let text = fs::read(path).map_err(|error| failed("read", path, &error))?;
    let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let mut results: Option<Results> = None;
    let mut known = HashSet::new();
    for (number, line) in text[..complete].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).enumerate() {
        let fail = |cause: String| Failure(format!("read {}: line {}: {cause}", path.display(), number + 1));
        let line: Line = serde_json::from_slice(line).map_err(|error| fail(error.to_string()))?;
        match (line, &mut results) {
            (Line::Head(head), None) if head.format == FORMAT => {
                if head.scenario.contestants.is_empty() || !(1..=ROUNDS_MAX).contains(&head.scenario.rounds) {
                    return Err(fail("no contestants, or too many rounds".to_owned()));
                }
                results = Some(Results::new(*head));
            }
            (Line::Head(head), None) => {
                return Err(fail(format!("format {} is not supported, only {FORMAT}", head.format)));
            }
            (Line::Turn(turn), Some(results)) => {
                let scenario = &results.head.scenario;
                if turn.contestant >= scenario.contestants.len() || turn.round >= scenario.rounds {
                    return Err(fail(format!("round {} of contestant {} does not exist", turn.round, turn.contestant)));
                }
                if !(0.0..SECONDS_MAX).contains(&turn.at_s) {
                    return Err(fail(format!("a turn at {} s", turn.at_s)));
                }
                if !known.insert((turn.contestant, turn.round)) {
                    return Err(fail(format!("round {} of contestant {} again", turn.round, turn.contestant)));
                }
                results.turns.push(turn);
            }
            (Line::Head(_), Some(_)) => return Err(fail("a second head; each file has one run".to_owned())),
            (Line::Turn(_), None) => return Err(fail("a turn before the head".to_owned())),
        }
    }
    let results = results.ok_or_else(|| {
        Failure(format!("read {}: no results of a scenario; delete it to start a new run", path.display()))
    })?;
    Ok((results, complete as u64))
}

fn failed(operation: &str, path: &Path, error: &io::Error) -> Failure {
    Failure(format!("{operation} {}: {error}", path.display()))
}
