//! A point of a campaign: which process, at which step of which life, at which of its system calls, gets which fault.

use std::{fmt, str::FromStr};

/// The process whose system calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// All threads of the daemon.
    Daemon,
    /// The monitor alone.
    Monitor,
    /// The monitor and what it clones: intermediate processes, writers, init processes of containers.
    Children,
}

/// A scripted sequence of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Life {
    /// A pod of one container.
    Pod,
    /// An image from a registry.
    Image,
    /// A start of the daemon, next to a monitor that runs.
    Restart,
    /// A start of the daemon while no monitor runs.
    ColdStart,
}

/// What happens at the system call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// SIGKILL before the call is executed.
    Kill,
    /// The call fails with this errno and is not executed.
    Error(String),
    /// The call begins after this many milliseconds.
    Delay(u64),
}

/// See the head of this file. Written and parsed as `daemon:pod@2:openat:17:EIO`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    pub(crate) target: Target,
    pub(crate) life: Life,
    /// The step before which the tracer is attached.
    pub(crate) step: usize,
    pub(crate) call: String,
    /// Which call of a thread, from 1; each thread counts from the moment the tracer is attached.
    pub(crate) number: u64,
    pub(crate) fault: Fault,
}

const TARGETS: [(Target, &str); 3] =
    [(Target::Daemon, "daemon"), (Target::Monitor, "monitor"), (Target::Children, "children")];
const LIVES: [(Life, &str); 4] =
    [(Life::Pod, "pod"), (Life::Image, "image"), (Life::Restart, "restart"), (Life::ColdStart, "coldstart")];

impl Point {
    /// The argument of `strace --inject=`.
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
        let life = LIVES.iter().find(|(life, _)| *life == self.life).map_or("", |(_, name)| name);
        write!(f, "{target}:{life}@{}:{}:{}:", self.step, self.call, self.number)?;
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
        let wrong = || format!("{text}: not a point like daemon:pod@2:openat:17:EIO");
        let [target, life, call, number, fault] = text.split(':').collect::<Vec<_>>()[..] else { return Err(wrong()) };
        let (life, step) = life.split_once('@').ok_or_else(wrong)?;
        let fault = match fault.strip_suffix("ms").map(str::parse) {
            Some(milliseconds) => Fault::Delay(milliseconds.map_err(|_| wrong())?),
            None if fault == "KILL" => Fault::Kill,
            None => Fault::Error(fault.to_owned()),
        };
        Ok(Self {
            target: TARGETS.iter().find(|(_, name)| *name == target).ok_or_else(wrong)?.0,
            life: LIVES.iter().find(|(_, name)| *name == life).ok_or_else(wrong)?.0,
            step: step.parse().map_err(|_| wrong())?,
            call: call.to_owned(),
            number: number.parse().map_err(|_| wrong())?,
            fault,
        })
    }
}
