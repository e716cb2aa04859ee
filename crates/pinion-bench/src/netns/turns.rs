//! Turns: in each, one server is measured with one number of namespaces and connections.

use std::collections::BTreeMap;

use netns::{Namespace, PinGroup, SysctlDir};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    plan::{Strategy, name, pins},
    server_process::{Kind, Run, measure},
    vrf,
};
use crate::{
    engine::Failure,
    results::{Better, Contestant, Description, Metric, TurnLog},
    run::Scenario,
};

/// Servers in many namespaces.
pub(super) struct Servers {
    pub(super) kinds: Vec<Kind>,
    pub(super) namespaces: Vec<usize>,
    pub(super) connections: Vec<usize>,
    pub(super) rounds: usize,
    pub(super) seconds: f64,
    /// The namespaces of the current case.
    pub(super) current: Option<Case>,
}

/// Namespaces with pins.
pub(super) struct Case {
    namespaces: usize,
    group: PinGroup,
    /// Why servers in VRFs are not measured.
    without_vrf: Option<String>,
}

impl Case {
    fn create(namespaces: usize, has_vrf: bool) -> Result<Self, Failure> {
        let group = pins()?;
        for (number, namespace) in Namespace::create_many(namespaces, 0)?.enumerate() {
            let namespace = namespace?;
            if number == 0 {
                // One namespace has the connections of all: more than there are ports by default.
                SysctlDir::open(&namespace, "ipv4")?.write("ip_local_port_range", "1024 65535")?;
            }
            group.pins().pin(&name(number), &namespace)?;
        }
        let vrf = if has_vrf { vrf::create(&group, namespaces) } else { Ok(()) };
        Ok(Self { namespaces, group, without_vrf: vrf.err().map(|failure| failure.0) })
    }
}

/// Raises the limit of descriptors to the maximum; returns why so many sockets are not possible, if they are not.
fn too_many_descriptors(namespaces: usize, connections: usize) -> Option<String> {
    /// Descriptors of a server that are not sockets.
    const OTHERS: usize = 64;
    let limit = getrlimit(Resource::Nofile);
    // A process may always raise its limit to the maximum, and its children inherit it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let needed = namespaces.saturating_mul(connections + 1).saturating_add(OTHERS);
    let maximum = limit.maximum.unwrap_or(u64::MAX);
    (needed as u64 > maximum).then(|| format!("needs {needed} descriptors, the limit is {maximum}"))
}

impl Servers {
    /// Returns numbers of namespaces and connections of a round.
    fn case(&self, round: usize) -> Option<(usize, usize)> {
        let case = round / self.rounds;
        let connections = self.connections.get(case / self.namespaces.len())?;
        Some((*self.namespaces.get(case % self.namespaces.len())?, *connections))
    }

    /// Measures a server. `None` if this machine cannot run it.
    fn measure(
        &mut self,
        contestant: usize,
        (namespaces, connections): (usize, usize),
    ) -> Result<Option<Run>, Failure> {
        let kind = &self.kinds[contestant];
        let is_possible = match kind {
            Kind::Strategy(strategy) => strategy.is_possible(namespaces),
            Kind::Program(_) => true,
        };
        if !is_possible {
            return Ok(None);
        }
        if let Some(cause) = too_many_descriptors(namespaces, connections) {
            return Err(Failure(cause));
        }
        let is_vrf = |kind: &Kind| matches!(kind, Kind::Strategy(Strategy::Vrf));
        let case = match self.current.take() {
            Some(case) if case.namespaces == namespaces => case,
            previous => {
                if let Some(case) = previous {
                    case.group.delete()?;
                }
                Case::create(namespaces, self.kinds.iter().any(is_vrf))?
            }
        };
        let without_vrf = case.without_vrf.clone().filter(|_| is_vrf(kind));
        self.current = Some(case);
        match without_vrf {
            Some(cause) => Err(Failure(cause)),
            None => measure(kind, namespaces, connections, self.seconds).map(Some),
        }
    }
}

fn rate(connections: usize) -> String {
    format!("requests, {}", each(connections))
}

fn named(name: &str, connections: usize) -> String {
    format!("{name}, {}", each(connections))
}

fn each(connections: usize) -> String {
    match connections {
        1 => "1 connection in each".to_owned(),
        _ => format!("{connections} connections in each"),
    }
}

const P50: &str = "round trip, median";
const P99: &str = "round trip, 99th percentile";
const CPU: &str = "CPU of the server for a request";
const LISTENING: &str = "until the server listens in all";
const MEMORY: &str = "memory of the server, PSS";
const THREADS: &str = "threads of the server";

impl Scenario for Servers {
    fn description(&self) -> Description {
        let metrics = self.connections.iter().flat_map(|connections| {
            let rate = Metric { better: Better::Higher, ..Metric::lower(&rate(*connections), "1/s") };
            let others = [(P50, "µs"), (P99, "µs"), (CPU, "µs"), (LISTENING, "ms"), (MEMORY, "MiB"), (THREADS, "")];
            let others = others.map(|(name, unit)| Metric::lower(&named(name, *connections), unit));
            std::iter::once(rate.headline()).chain(others)
        });
        let list = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let settings = [
            ("namespaces", list(&self.namespaces)),
            ("connections in each", list(&self.connections)),
            ("seconds of a turn", self.seconds.to_string()),
        ];
        Description {
            name: "netns".to_owned(),
            title: "Servers in many network namespaces".to_owned(),
            work: "A server answers requests of 64 bytes on the same address and port in each of many network namespaces; `one` has as many connections in one \
                   namespace. Client and server have half of the processors each."
                .to_owned(),
            parameter: "namespaces".to_owned(),
            common: String::new(),
            settings: BTreeMap::from(settings.map(|(name, value)| (name.to_owned(), value))),
            metrics: metrics.collect(),
            contestants: self.kinds.iter().map(|kind| Contestant::new(&kind.name(), "pinion-bench", "server")).collect(),
            rounds: self.namespaces.len() * self.connections.len() * self.rounds,
        }
    }

    async fn warm_up(&mut self, _contestant: usize) -> Result<(), Failure> {
        Ok(())
    }

    async fn turn(&mut self, contestant: usize, round: usize, log: &mut TurnLog) {
        let Some((namespaces, connections)) = self.case(round) else { return };
        let parameter = Some(namespaces as f64);
        let measured = tokio::task::block_in_place(|| self.measure(contestant, (namespaces, connections)));
        let run = match measured {
            Ok(Some(run)) => run,
            Ok(None) => return,
            Err(failure) => return log.fail(&rate(connections), parameter, &failure.0),
        };
        let measured = run.measured;
        if measured.errors > 0 {
            let cause = format!("{} connections broke or had wrong answers", measured.errors);
            return log.fail(&rate(connections), parameter, &cause);
        }
        log.add(&rate(connections), parameter, measured.requests as f64 / measured.seconds.max(f64::MIN_POSITIVE));
        let mut add = |name: &str, value: f64| log.add(&named(name, connections), parameter, value);
        add(P50, measured.p50_us);
        add(P99, measured.p99_us);
        add(CPU, run.cpu_us_per_request);
        add(LISTENING, run.listening.as_secs_f64() * 1000.0);
        add(MEMORY, run.pss_kib as f64 / 1024.0);
        add(THREADS, run.threads as f64);
    }

    async fn clean_up(&mut self) {
        if let Some(case) = self.current.take() {
            // The mount namespace of this process, which has the pins, ends with it.
            let _ = case.group.delete();
        }
    }
}
