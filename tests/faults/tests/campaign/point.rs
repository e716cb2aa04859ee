//! A point of a campaign: the process, the step of the scenario, the system call, and the fault that is injected.

use std::{fmt, str::FromStr};

/// The process whose system calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// All threads of the daemon.
    Daemon,
    /// Only the monitor.
    Monitor,
    /// The monitor and the processes that it clones: intermediate processes, log writers, init processes of containers.
    Children,
}

/// A scripted sequence of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scenario {
    /// A pod with one container.
    Pod,
    /// An image from a registry.
    Image,
    /// A start of the daemon while a monitor is running.
    Restart,
    /// A start of the daemon while no monitor is running.
    ColdStart,
}

/// The fault that is injected at a system call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// SIGKILL before the call is executed.
    Kill,
    /// The call fails with this errno and is not executed.
    Error(String),
    /// The call is delayed by this number of milliseconds.
    Delay(u64),
}

/// A point, which is formatted and parsed as `daemon:pod@2:openat:17:EIO`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    pub(crate) target: Target,
    pub(crate) scenario: Scenario,
    /// The step before which the tracer is attached.
    pub(crate) step: usize,
    pub(crate) call: String,
    /// Number of the call, from 1; each thread counts its calls from the time at which the tracer is attached.
    pub(crate) number: u64,
    pub(crate) fault: Fault,
}

const TARGETS: [(Target, &str); 3] =
    [(Target::Daemon, "daemon"), (Target::Monitor, "monitor"), (Target::Children, "children")];
const SCENARIOS: [(Scenario, &str); 4] = [
    (Scenario::Pod, "pod"),
    (Scenario::Image, "image"),
    (Scenario::Restart, "restart"),
    (Scenario::ColdStart, "coldstart"),
];

impl Point {
    /// Returns the argument for `strace --inject=`.
    pub(crate) fn injection(&self) -> String {
        let fault = match &self.fault {
            Fault::Kill => "signal=KILL".to_owned(),
            Fault::Error(errno) => format!("error={errno}"),
            Fault::Delay(milliseconds) => format!("delay_enter={milliseconds}ms"),
        };
        format!("{}:{fault}:when={}", self.call, self.number)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = TARGETS.iter().find(|(target, _)| *target == self.target).map_or("", |(_, name)| name);
        let scenario = SCENARIOS.iter().find(|(scenario, _)| *scenario == self.scenario).map_or("", |(_, name)| name);
        write!(f, "{target}:{scenario}@{}:{}:{}:", self.step, self.call, self.number)?;
        match &self.fault {
            Fault::Kill => write!(f, "KILL"),
            Fault::Error(errno) => write!(f, "{errno}"),
            Fault::Delay(milliseconds) => write!(f, "{milliseconds}ms"),
        }
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text}: not a point like daemon:pod@2:openat:17:EIO");
        let [target, scenario, call, number, fault] = text.split(':').collect::<Vec<_>>()[..] else {
            return Err(invalid());
        };
        let (scenario, step) = scenario.split_once('@').ok_or_else(invalid)?;
        let fault = match fault.strip_suffix("ms").map(str::parse) {
            Some(milliseconds) => Fault::Delay(milliseconds.map_err(|_| invalid())?),
            None if fault == "KILL" => Fault::Kill,
            None => Fault::Error(fault.to_owned()),
        };
        Ok(Self {
            target: TARGETS.iter().find(|(_, name)| *name == target).ok_or_else(invalid)?.0,
            scenario: SCENARIOS.iter().find(|(_, name)| *name == scenario).ok_or_else(invalid)?.0,
            step: step.parse().map_err(|_| invalid())?,
            call: call.to_owned(),
            number: number.parse().map_err(|_| invalid())?,
            fault,
        })
    }
}
