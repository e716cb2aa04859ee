//! Finds all points of a campaign, selects some of them, runs them, and reports the results.

use std::{
    collections::{BTreeMap, VecDeque},
    env,
    sync::Mutex,
    thread,
    time::{Duration, Instant, SystemTime},
};

use system_tests::Process;

use crate::{
    fixture::Fixture,
    point::{Fault, Point, Scenario, Target},
    probe::Probe,
    random::Random,
    scenario::{ScenarioRun, Tolerance},
    strace::{self, Tracer, outer_pid},
};

/// Maximum duration of an exec in the bystander while another operation is delayed by three seconds; under strace, on a
/// busy machine.
const EXEC_MAX: Duration = Duration::from_millis(1500);
/// The step of the pod scenario that is an exec.
const EXEC_STEP: usize = 3;
/// Number of steps of the pod scenario before the restart of the daemon.
const STEPS_BEFORE_RESTART: usize = 4;

/// The options of a campaign, from the environment; see docs/campaigns.md.
pub(crate) struct Campaign {
    name: &'static str,
    seed: u64,
    points: usize,
    /// Points that were specified, instead of selected ones.
    given: Vec<Point>,
    jobs: usize,
    /// No point is started after this time.
    limit: Duration,
}

/// The results of all points.
#[derive(Debug, Default)]
struct Report {
    points: usize,
    missed: usize,
    daemon_restarts: u64,
    slowest_exec: Duration,
    faults: Vec<String>,
}

/// The result of one point.
struct Outcome {
    injected: bool,
    slowest_exec: Duration,
}

impl Campaign {
    pub(crate) fn from_environment(name: &'static str, short: usize, long: usize) -> Self {
        let number = |name: &str| env::var(name).ok().map(|text| text.parse::<usize>().expect("a number"));
        let is_long = env::var("CAMPAIGN_FORM").is_ok_and(|form| form == "long");
        let limit = number("CAMPAIGN_SECONDS").unwrap_or(if is_long { 24 * 3600 } else { 12 });
        Self {
            name,
            seed: number("CAMPAIGN_SEED").unwrap_or(1) as u64,
            points: number("CAMPAIGN_POINTS").unwrap_or(if is_long { long } else { short }),
            given: env::var("CAMPAIGN_POINT").ok().map(|text| text.parse().expect("a point")).into_iter().collect(),
            jobs: number("CAMPAIGN_JOBS").unwrap_or(if is_long { 2 } else { 1 }),
            limit: Duration::from_secs(limit as u64),
        }
    }

    /// Creates a campaign of these points.
    pub(crate) fn of_points(name: &'static str, points: &[&str]) -> Self {
        let given = points.iter().map(|text| text.parse().expect("a point")).collect();
        let limit = Duration::from_secs(24 * 3600);
        Self { name, seed: 0, points: points.len(), given, jobs: 1, limit }
    }

    /// Runs the points; panics if there is a fault.
    pub(crate) fn run(&self, scenarios: &[(Target, Scenario)], faults: impl Fn(Target, &str) -> Vec<Fault>) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("tokio");
        let start = Instant::now();
        let mut fixtures = Vec::new();
        let points = if self.given.is_empty() {
            let (counts, fixture) = runtime.block_on(calibrate(scenarios));
            fixtures.push(fixture);
            self.select(counts, faults)
        } else {
            self.given.clone()
        };
        println!(
            "{}: seed {}, {} points selected after {} s",
            self.name,
            self.seed,
            points.len(),
            start.elapsed().as_secs()
        );
        let (total, selected_at) = (points.len(), Instant::now());
        let queue = Mutex::new(VecDeque::from(points));
        let report = Mutex::new(Report::default());
        thread::scope(|scope| {
            for _ in 0..self.jobs.min(total) {
                let fixture = fixtures.pop();
                scope.spawn(|| runtime.block_on(work(&queue, &report, fixture, selected_at + self.limit)));
            }
        });
        let report = report.into_inner().expect("no panic");
        println!(
            "{}: seed {}: {} points, {} more were not reached; {} restarts of the daemon; slowest exec {} ms; {} faults; {} s",
            self.name,
            self.seed,
            report.points,
            report.missed,
            report.daemon_restarts,
            report.slowest_exec.as_millis(),
            report.faults.len(),
            start.elapsed().as_secs()
        );
        assert!(report.points + report.missed > 0, "no point was run");
        // Not every point is reached, because the thread that makes a call varies, but most must be.
        assert!(self.given.len() < 2 || report.missed < report.points, "{} points were not reached", report.missed);
        assert!(report.faults.is_empty(), "seed {}:\n{}", self.seed, report.faults.join("\n"));
    }

    /// Selects the configured number of points at random.
    fn select(
        &self,
        counts: BTreeMap<(Target, Scenario, usize), Counts>,
        faults: impl Fn(Target, &str) -> Vec<Fault>,
    ) -> Vec<Point> {
        let mut points = Vec::new();
        let is_exec_call = |target: Target, call: &str| {
            counts.get(&(target, Scenario::Pod, EXEC_STEP)).is_some_and(|calls| calls.contains_key(call))
        };
        for ((target, scenario, step), calls) in &counts {
            let (target, scenario, step) = (*target, *scenario, *step);
            for (call, max) in calls {
                for fault in faults(target, call) {
                    // A delay of a call that an exec makes would delay the exec of the probe, which would not be a
                    // fault.
                    if matches!(fault, Fault::Delay(_)) && is_exec_call(target, call) {
                        continue;
                    }
                    points.extend((1..=*max).map(|number| Point {
                        target,
                        scenario,
                        step,
                        call: call.clone(),
                        number,
                        fault: fault.clone(),
                    }));
                }
            }
        }
        println!("{}: {} points in total", self.name, points.len());
        Random::new(self.seed).shuffle(&mut points);
        points.truncate(self.points);
        points
    }
}

type Counts = BTreeMap<String, u64>;

/// Runs the scenarios without faults, and counts the calls by process, scenario and step.
async fn calibrate(scenarios: &[(Target, Scenario)]) -> (BTreeMap<(Target, Scenario, usize), Counts>, Fixture) {
    let mut fixture = Fixture::new().await;
    let mut counts = BTreeMap::new();
    for (target, scenario) in scenarios {
        let mut run = ScenarioRun::new(
            *scenario,
            format!("calibrate-{target:?}-{scenario:?}").to_lowercase(),
            Tolerance::default(),
        );
        let (trace, ends) = match scenario {
            Scenario::Pod | Scenario::Image => {
                let tracer = attach(&fixture, *target, None);
                let mut ends = Vec::new();
                for step in 0..scenario.steps() {
                    run.step(&mut fixture, step).await;
                    ends.push(now());
                }
                (tracer.detach(), ends)
            }
            Scenario::Restart | Scenario::ColdStart => {
                (start_traced(&mut fixture, &mut run, *scenario, None).await, vec![f64::MAX])
            }
        };
        fixture.check().await;
        assert_eq!(fixture.faults, Vec::<String>::new(), "undisturbed: {target:?} {scenario:?}");
        for (step, calls) in strace::count(&trace, &ends).into_iter().enumerate() {
            counts.insert((*target, *scenario, step), calls);
        }
    }
    fixture.restarts = 0;
    (counts, fixture)
}

fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn attach(fixture: &Fixture, target: Target, point: Option<&Point>) -> Tracer {
    let name = if target == Target::Daemon { "pinion" } else { "pinmon" };
    let pid = outer_pid(&fixture.node, &fixture.node.process(name)).expect("its pid in the PID namespace of the test");
    Tracer::attach(pid, target != Target::Monitor, point, fixture.node.dir.path().join("trace"))
}

/// Runs the pod scenario with a restart of the daemon under strace in the middle. Returns the trace.
async fn start_traced(
    fixture: &mut Fixture,
    run: &mut ScenarioRun,
    scenario: Scenario,
    point: Option<&Point>,
) -> String {
    for step in 0..STEPS_BEFORE_RESTART {
        run.step(fixture, step).await;
    }
    let output = fixture.node.dir.path().join("trace");
    let _ = std::fs::remove_file(&output);
    if scenario == Scenario::ColdStart {
        fixture.node.kill(&fixture.node.process("pinmon"));
    }
    fixture.node.kill_daemon();
    let mut wrapper: Vec<String> = ["strace", "-f", "-b", "execve", "-o"].map(str::to_owned).to_vec();
    wrapper.push(output.display().to_string());
    wrapper.extend(strace::arguments(point));
    fixture.node.spawn_daemon(&wrapper);
    fixture.wait_for_traced_daemon().await;
    // strace is the parent of the daemon, so both are killed, and the daemon is started again without strace.
    if fixture.node.daemon_status().is_none() {
        // The fault may be killing the daemon at this time.
        let is_daemon = |process: &Process| process.name == "pinion" && process.state != 'Z';
        if let Some(daemon) = fixture.node.processes().into_iter().find(is_daemon) {
            let _ = fixture.node.run("kill", &["-KILL", &daemon.pid.to_string()]);
        }
        fixture.node.reap_daemon();
        fixture.node.spawn_daemon(&[]);
        fixture.wait_for_daemon();
    } else {
        fixture.restart_daemon_if_exited();
    }
    for step in STEPS_BEFORE_RESTART..Scenario::Pod.steps() {
        run.step(fixture, step).await;
    }
    std::fs::read_to_string(output).unwrap_or_default()
}

/// Runs points from the queue until it is empty or the time is over. A fixture with a fault is replaced.
async fn work(queue: &Mutex<VecDeque<Point>>, report: &Mutex<Report>, mut fixture: Option<Fixture>, deadline: Instant) {
    let next = || queue.lock().expect("no panic").pop_front();
    while let Some(point) = next().filter(|_| Instant::now() < deadline) {
        if fixture.is_none() {
            fixture = Some(Fixture::new().await);
        }
        let Some(current) = fixture.as_mut() else { return };
        let start = Instant::now();
        let outcome = run_point(current, &point).await;
        let mut report = report.lock().expect("no panic");
        *(if outcome.injected { &mut report.points } else { &mut report.missed }) += 1;
        report.daemon_restarts += std::mem::take(&mut current.restarts);
        report.slowest_exec = report.slowest_exec.max(outcome.slowest_exec);
        if env::var_os("CAMPAIGN_VERBOSE").is_some() {
            println!(
                "{point}: {}, {} ms",
                if outcome.injected { "run" } else { "not reached" },
                start.elapsed().as_millis()
            );
        }
        if !current.faults.is_empty() {
            let text = format!("FAULT at {point}:\n  {}", current.faults.join("\n  "));
            println!("{text}");
            if let Ok(log) = env::var("CAMPAIGN_LOG") {
                let name = format!("{log}/{}.log", point.to_string().replace([':', '@'], "-"));
                let _ = std::fs::write(name, format!("{text}\n{}", current.node.daemon_log()));
            }
            report.faults.push(text);
            fixture = None;
        }
    }
    if let Some(fixture) = fixture {
        fixture.end();
    }
}

async fn run_point(fixture: &mut Fixture, point: &Point) -> Outcome {
    let is_kill = point.fault == Fault::Kill;
    let tolerance = Tolerance {
        broken_start: !is_kill || point.target != Target::Daemon,
        errors: !is_kill || point.target == Target::Children,
    };
    let name = format!("p{}", point.to_string().replace([':', '@', '_'], "-").to_lowercase());
    let mut run = ScenarioRun::new(point.scenario, name, tolerance);
    let probe = (!is_kill).then(|| Probe::start(fixture));
    let trace = match point.scenario {
        Scenario::Restart | Scenario::ColdStart => start_traced(fixture, &mut run, point.scenario, Some(point)).await,
        Scenario::Pod | Scenario::Image => {
            for step in 0..point.step {
                run.step(fixture, step).await;
            }
            fixture.tracer = Some(attach(fixture, point.target, Some(point)));
            for step in point.step..point.scenario.steps() {
                run.step(fixture, step).await;
            }
            fixture.detach();
            std::mem::take(&mut fixture.trace)
        }
    };
    // A daemon that was killed at its last call may not have exited yet.
    fixture.wait_for_traced_daemon().await;
    fixture.restart_daemon_if_exited();
    let slowest_exec = match probe {
        Some(probe) => probe.longest().await,
        None => Duration::ZERO,
    };
    let injected = strace::injected(&trace);
    if matches!(point.fault, Fault::Delay(_))
        && slowest_exec > EXEC_MAX
        && matches!(point.scenario, Scenario::Pod | Scenario::Image)
    {
        fixture.fault(format!("an exec in the bystander took {} ms", slowest_exec.as_millis()));
    }
    fixture.check().await;
    if !fixture.faults.is_empty() {
        fixture.fault(format!("faulted calls: {injected:?}"));
    }
    Outcome { injected: !injected.is_empty(), slowest_exec }
}
