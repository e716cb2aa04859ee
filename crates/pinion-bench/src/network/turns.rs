//! Turns: in each, one engine is measured with one pair of drivers, idle and under load.

use std::collections::BTreeMap;

use super::{
    Arguments, Engine, Load, Pair,
    bed::{self, Bed},
    image::Image,
    meters::{self, Processors, Protocol},
    node::version,
};
use crate::{
    engine::Failure,
    note::note,
    results::{Better, Contestant, Description, Metric, TurnLog},
    run::Scenario,
};

const THROUGHPUT: &str = "TCP throughput";
const RETRANSMITS: &str = "TCP segments sent again";
const LOST: &str = "UDP messages without a response";
const P50: &str = "p50";
const P99: &str = "p99";
const MINIMUM: &str = "minimum";
/// Duration of each measurement after the start of a bed, whose results are not recorded.
const WARM_UP_SECONDS: u64 = 1;

/// Engines whose network drivers are measured.
pub(super) struct Drivers<'a> {
    arguments: &'a Arguments,
    loads: &'static [Load],
    /// Versions of the meters.
    meters: String,
    processors: Processors,
    image: Image,
    /// The beds of the pair whose turn it is: the nodes of one pair at a time are running.
    current: Option<Case>,
}

/// The beds of a pair, one for each engine.
struct Case {
    pair: Pair,
    /// `None` before they are started; or why they could not be.
    beds: Vec<Option<Result<Bed, String>>>,
}

impl<'a> Drivers<'a> {
    /// Builds the image of the containers, and fails if a meter is missing.
    pub(super) fn new(arguments: &'a Arguments) -> Result<Self, Failure> {
        let loads: &[Load] = if arguments.only_idle { &[Load::Idle] } else { &[Load::Idle, Load::Stressed] };
        let meters = meters::versions(loads)?;
        let (processors, image) = (Processors::choose()?, Image::build(&arguments.busybox)?);
        Ok(Self { arguments, loads, meters, processors, image, current: None })
    }

    /// Returns the pair of a round.
    fn pair(&self, round: usize) -> Option<Pair> {
        self.arguments.pair.get(round / self.arguments.rounds).copied()
    }

    /// Starts the bed of an engine, unless this was tried before, and measures it once without a record.
    async fn prepare(&mut self, contestant: usize, pair: Pair) -> Result<(), Failure> {
        let engine = self.arguments.engine[contestant];
        let case = match self.current.take() {
            Some(case) if case.pair == pair => case,
            // The previous nodes end before further ones are started.
            previous => {
                tokio::task::block_in_place(|| drop(previous));
                Case { pair, beds: self.arguments.engine.iter().map(|_| None).collect() }
            }
        };
        let slot = &mut self.current.insert(case).beds[contestant];
        if slot.is_some() {
            return Ok(());
        }
        let started = tokio::task::block_in_place(|| bed::start(self.arguments, engine, pair, &self.image));
        let bed = slot.insert(started.map_err(|failure| failure.0));
        let bed = bed.as_ref().map_err(|cause| Failure(format!("{engine}: {pair}: {cause}")))?;
        // A second interrupt does not wait for the measurements.
        tokio::task::yield_now().await;
        let mut log = TurnLog::default();
        measure(bed, (pair, Load::Idle), (self.processors, WARM_UP_SECONDS), &mut log).await;
        match log.failures.first() {
            Some(failure) => Err(Failure(format!("{engine}: {}: {}", failure.metric, failure.cause))),
            None => Ok(()),
        }
    }

    fn contestant(&self, engine: Engine) -> Contestant {
        let Arguments { pinion, dockerd, guest_image, .. } = self.arguments;
        let (program, configuration) = match engine {
            Engine::Pinion => (pinion, "containers, defaults".to_owned()),
            Engine::Docker => (dockerd, "containers, defaults, cgroupfs".to_owned()),
            Engine::Vm => (pinion, format!("a virtual machine for each container, image {}", guest_image.display())),
            Engine::Tap => (pinion, "taps as for virtual machines, without guests".to_owned()),
        };
        Contestant::new(engine.name(), &version(program).unwrap_or_else(|_| "?".to_owned()), &configuration)
    }
}

fn named(pair: Pair, load: Load, value: &str) -> String {
    format!("{pair}: {value}, {}", load.name())
}

fn round_trip(protocol: Protocol, statistic: &str) -> String {
    format!("{} round trip {statistic}", protocol.name())
}

/// Returns the metrics of a pair with a load. Measurements that fail are counted with the headlines.
fn metrics(pair: Pair, load: Load) -> Vec<Metric> {
    let metric = |value: &str, unit: &str| Metric::lower(&named(pair, load, value), unit);
    let mut metrics =
        vec![Metric { better: Better::Higher, ..metric(THROUGHPUT, "Gbit/s") }.headline(), metric(RETRANSMITS, "")];
    for protocol in Protocol::ALL {
        metrics.push(metric(&round_trip(protocol, P50), "µs").headline());
        metrics.extend([P99, MINIMUM].map(|statistic| metric(&round_trip(protocol, statistic), "µs")));
    }
    metrics.push(metric(LOST, ""));
    metrics
}

/// Measures throughput and round trips once.
async fn measure(bed: &Bed, (pair, load): (Pair, Load), (processors, seconds): (Processors, u64), log: &mut TurnLog) {
    let stressor = match load {
        Load::Idle => None,
        Load::Stressed => match meters::stress(bed, processors).await {
            Ok(stressor) => Some(stressor),
            Err(failure) => return fail((pair, load), &failure.0, log),
        },
    };
    let name = |value: &str| named(pair, load, value);
    match meters::throughput(bed, processors, seconds).await {
        Ok(throughput) => {
            log.add(&name(THROUGHPUT), None, throughput.gbits);
            log.add(&name(RETRANSMITS), None, throughput.retransmits as f64);
        }
        Err(failure) => log.fail(&name(THROUGHPUT), None, &failure.0),
    }
    for protocol in Protocol::ALL {
        let metric = |statistic: &str| name(&round_trip(protocol, statistic));
        match meters::latency(bed, processors, seconds, protocol).await {
            Ok(latency) => {
                log.add(&metric(P50), None, latency.p50_us);
                log.add(&metric(P99), None, latency.p99_us);
                log.add(&metric(MINIMUM), None, latency.min_us);
                if protocol == Protocol::Udp {
                    log.add(&name(LOST), None, latency.dropped as f64);
                }
            }
            Err(failure) => log.fail(&metric(P50), None, &failure.0),
        }
    }
    drop(stressor);
}

/// Records that none of the measurements of a pair with a load could be made.
fn fail((pair, load): (Pair, Load), cause: &str, log: &mut TurnLog) {
    log.fail(&named(pair, load, THROUGHPUT), None, cause);
    for protocol in Protocol::ALL {
        log.fail(&named(pair, load, &round_trip(protocol, P50)), None, cause);
    }
}

impl Scenario for Drivers<'_> {
    fn description(&self) -> Description {
        let pairs = &self.arguments.pair;
        let cases = pairs.iter().flat_map(|pair| self.loads.iter().map(|load| (*pair, *load)));
        let names = |names: Vec<&str>| names.join(", ");
        let Processors { client, server, count } = self.processors;
        let settings = [
            ("drivers", names(pairs.iter().map(|pair| pair.name()).collect())),
            ("loads", names(self.loads.iter().map(|load| load.name()).collect())),
            ("seconds of a measurement", self.arguments.seconds.to_string()),
            (
                "processors",
                format!("{client} of the client, {server} of the server; {count} workers of stress-ng under load"),
            ),
            ("meters", self.meters.clone()),
        ];
        Description {
            name: "network".to_owned(),
            title: "Network drivers".to_owned(),
            work: "A client and a server in containers are connected by a network driver (host: a client of the node itself, and a container of the bridge; \
                   overlay: containers of two nodes). A TCP stream of iperf3, and round trips of 64 bytes over TCP and UDP by sockperf, one message at a \
                   time; under load, stress-ng runs in the server's container."
                .to_owned(),
            parameter: String::new(),
            common: "Client and server in containers".to_owned(),
            settings: BTreeMap::from(settings.map(|(name, value)| (name.to_owned(), value))),
            metrics: cases.flat_map(|(pair, load)| metrics(pair, load)).collect(),
            contestants: self.arguments.engine.iter().map(|engine| self.contestant(*engine)).collect(),
            rounds: pairs.len() * self.arguments.rounds,
        }
    }

    async fn warm_up(&mut self, _contestant: usize) -> Result<(), Failure> {
        // The beds of a pair are prepared before the first of its turns.
        Ok(())
    }

    async fn turn(&mut self, contestant: usize, round: usize, log: &mut TurnLog) {
        let Some(pair) = self.pair(round) else { return };
        // All engines of a pair are running while one of them is measured.
        for contestant in 0..self.arguments.engine.len() {
            if let Err(failure) = self.prepare(contestant, pair).await {
                note(&format!("pinion-bench: warm up: {failure}"));
            }
        }
        let bed = self.current.as_ref().and_then(|case| case.beds[contestant].as_ref());
        for load in self.loads {
            match bed {
                Some(Ok(bed)) => measure(bed, (pair, *load), (self.processors, self.arguments.seconds), log).await,
                Some(Err(cause)) => fail((pair, *load), cause, log),
                None => {}
            }
        }
    }

    async fn clean_up(&mut self) {
        tokio::task::block_in_place(|| self.current = None);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_measurement_has_a_row_of_its_own() {
        let cases = Pair::ALL.iter().flat_map(|pair| [(*pair, Load::Idle), (*pair, Load::Stressed)]);
        let metrics: Vec<Metric> = cases.clone().flat_map(|(pair, load)| metrics(pair, load)).collect();
        let names: BTreeSet<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(names.len(), metrics.len());
        let mut log = TurnLog::default();
        cases.for_each(|case| fail(case, "no bed", &mut log));
        let is_headline = |name: &str| metrics.iter().any(|metric| metric.is_headline && metric.name == name);
        assert!(log.failures.iter().all(|failure| is_headline(&failure.metric)), "{:?}", log.failures);
        assert_eq!(log.failures.len(), metrics.iter().filter(|metric| metric.is_headline).count());
    }

    #[test]
    fn a_row_names_the_driver_the_value_and_the_load() {
        let name = named(Pair::Overlay, Load::Stressed, &round_trip(Protocol::Udp, P99));
        assert_eq!(name, "overlay: UDP round trip p99, under load");
    }
}
