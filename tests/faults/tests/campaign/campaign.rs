//! Which points there are, which of them are run, and what came of them.

use std::{
    collections::{BTreeMap, VecDeque},
    env,
    sync::Mutex,
    thread,
    time::{Duration, Instant, SystemTime},
};

use system_tests::Process;

use crate::{
    chance::Chance,
    life::{Led, Tolerance},
    point::{Fault, Life, Point, Target},
    probe::Probe,
    stage::Stage,
    strace::{self, Tracer, outer_pid},
};

/// Longest that an exec of the bystander may take while something else is delayed by three seconds; under strace, and
/// on a machine that is busy.
const EXEC_MAX: Duration = Duration::from_millis(1500);
/// The step of a pod's life that is an exec.
const EXEC: usize = 3;
/// Steps of the pod's life before the daemon's start.
const BEFORE_START: usize = 4;

/// What the environment says; see docs/campaigns.md.
pub(crate) struct Campaign {
    name: &'static str,
    seed: u64,
    points: usize,
    /// Points that are given, not chosen.
    given: Vec<Point>,
    jobs: usize,
    /// No point begins later than this.
    limit: Duration,
}

/// Counters over all points.
#[derive(Debug, Default)]
struct Report {
    points: usize,
    missed: usize,
    daemon_restarts: u64,
    slowest_exec: Duration,
    faults: Vec<String>,
}

/// What one point did.
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

    /// These points, all of them.
    pub(crate) fn of_points(name: &'static str, points: &[&str]) -> Self {
        let given = points.iter().map(|text| text.parse().expect("a point")).collect();
        let limit = Duration::from_secs(24 * 3600);
        Self { name, seed: 0, points: points.len(), given, jobs: 1, limit }
    }

    /// Runs the points; panics if there is a fault.
    pub(crate) fn run(&self, what: &[(Target, Life)], faults: impl Fn(Target, &str) -> Vec<Fault>) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("tokio");
        let begin = Instant::now();
        let mut stages = Vec::new();
        let points = if self.given.is_empty() {
            let (counts, calibrated) = runtime.block_on(calibrate(what));
            stages.push(calibrated);
            self.choose(counts, faults)
        } else {
            self.given.clone()
        };
        println!(
            "{}: seed {}, {} points chosen after {} s",
            self.name,
            self.seed,
            points.len(),
            begin.elapsed().as_secs()
        );
        let (total, chosen) = (points.len(), Instant::now());
        let queue = Mutex::new(VecDeque::from(points));
        let report = Mutex::new(Report::default());
        thread::scope(|scope| {
            for _ in 0..self.jobs.min(total) {
                let stage = stages.pop();
                scope.spawn(|| runtime.block_on(work(&queue, &report, stage, chosen + self.limit)));
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
            begin.elapsed().as_secs()
        );
        assert!(report.points + report.missed > 0, "no point was run");
        // Which thread makes a call is chance, but not that most are reached.
        assert!(self.given.len() < 2 || report.missed < report.points, "{} were not reached", report.missed);
        assert!(report.faults.is_empty(), "seed {}:\n{}", self.seed, report.faults.join("\n"));
    }

    /// As many points as are wanted, by chance, out of all.
    fn choose(
        &self,
        counts: BTreeMap<(Target, Life, usize), Counts>,
        faults: impl Fn(Target, &str) -> Vec<Fault>,
    ) -> Vec<Point> {
        let mut points = Vec::new();
        let exec = |target: Target, call: &str| {
            counts.get(&(target, Life::Pod, EXEC)).is_some_and(|calls| calls.contains_key(call))
        };
        for ((target, life, step), calls) in &counts {
            let (target, life, step) = (*target, *life, *step);
            for (call, most) in calls {
                for fault in faults(target, call) {
                    // An exec whose own call is delayed is late, and may be.
                    if matches!(fault, Fault::Delay(_)) && exec(target, call) {
                        continue;
                    }
                    points.extend((1..=*most).map(|number| Point {
                        target,
                        life,
                        step,
                        call: call.clone(),
                        number,
                        fault: fault.clone(),
                    }));
                }
            }
        }
        println!("{}: {} points there are", self.name, points.len());
        Chance::of_seed(self.seed).shuffle(&mut points);
        points.truncate(self.points);
        points
    }
}

type Counts = BTreeMap<String, u64>;

/// How many calls there are to fault, by process, life and step.
async fn calibrate(what: &[(Target, Life)]) -> (BTreeMap<(Target, Life, usize), Counts>, Stage) {
    let mut stage = Stage::new().await;
    let mut counts = BTreeMap::new();
    for (target, life) in what {
        let mut led = Led::new(*life, format!("calibrate-{target:?}-{life:?}").to_lowercase(), Tolerance::default());
        let (trace, ends) = match life {
            Life::Pod | Life::Image => {
                let tracer = attach(&stage, *target, None);
                let mut ends = Vec::new();
                for step in 0..life.steps() {
                    led.step(&mut stage, step).await;
                    ends.push(now());
                }
                (tracer.detach(), ends)
            }
            Life::Restart | Life::ColdStart => (start_traced(&mut stage, &mut led, *life, None).await, vec![f64::MAX]),
        };
        stage.check().await;
        assert_eq!(stage.faults, Vec::<String>::new(), "undisturbed: {target:?} {life:?}");
        for (step, calls) in strace::count(&trace, &ends).into_iter().enumerate() {
            counts.insert((*target, *life, step), calls);
        }
    }
    stage.restarts = 0;
    (counts, stage)
}

fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn attach(stage: &Stage, target: Target, point: Option<&Point>) -> Tracer {
    let name = if target == Target::Daemon { "pinion" } else { "pinmon" };
    let pid = outer_pid(&stage.node, &stage.node.process(name)).expect("its pid outside of the node");
    Tracer::attach(pid, target != Target::Monitor, point, stage.node.dir.path().join("trace"))
}

/// Leads a pod's life, with a start of the daemon under strace in the middle of it. Gives the trace.
async fn start_traced(stage: &mut Stage, led: &mut Led, life: Life, point: Option<&Point>) -> String {
    for step in 0..BEFORE_START {
        led.step(stage, step).await;
    }
    let output = stage.node.dir.path().join("trace");
    let _ = std::fs::remove_file(&output);
    if life == Life::ColdStart {
        stage.node.kill(&stage.node.process("pinmon"));
    }
    stage.node.kill_daemon();
    let mut wrapper: Vec<String> = ["strace", "-f", "-b", "execve", "-o"].map(str::to_owned).to_vec();
    wrapper.push(output.display().to_string());
    wrapper.extend(strace::arguments(point));
    stage.node.spawn_daemon(&wrapper);
    stage.wait_for_traced_daemon().await;
    // strace is the daemon's parent: both go, and the daemon comes again by itself.
    if stage.node.daemon_ended().is_none() {
        // Its point may be killing it right now.
        let lives = |process: &Process| process.name == "pinion" && process.state != 'Z';
        if let Some(daemon) = stage.node.processes().into_iter().find(lives) {
            let _ = stage.node.run("kill", &["-KILL", &daemon.pid.to_string()]);
        }
        stage.node.forget_daemon();
        stage.node.spawn_daemon(&[]);
        stage.wait_for_daemon();
    } else {
        stage.revive();
    }
    for step in BEFORE_START..Life::Pod.steps() {
        led.step(stage, step).await;
    }
    std::fs::read_to_string(output).unwrap_or_default()
}

/// Takes points until there are none; a stage with a fault is replaced.
async fn work(queue: &Mutex<VecDeque<Point>>, report: &Mutex<Report>, mut stage: Option<Stage>, end: Instant) {
    let next = || queue.lock().expect("no panic").pop_front();
    while let Some(point) = next().filter(|_| Instant::now() < end) {
        if stage.is_none() {
            stage = Some(Stage::new().await);
        }
        let Some(on) = stage.as_mut() else { return };
        let begin = Instant::now();
        let outcome = run_point(on, &point).await;
        let mut report = report.lock().expect("no panic");
        *(if outcome.injected { &mut report.points } else { &mut report.missed }) += 1;
        report.daemon_restarts += std::mem::take(&mut on.restarts);
        report.slowest_exec = report.slowest_exec.max(outcome.slowest_exec);
        if env::var_os("CAMPAIGN_VERBOSE").is_some() {
            println!(
                "{point}: {}, {} ms",
                if outcome.injected { "run" } else { "not reached" },
                begin.elapsed().as_millis()
            );
        }
        if !on.faults.is_empty() {
            let text = format!("FAULT at {point}:\n  {}", on.faults.join("\n  "));
            println!("{text}");
            if let Ok(log) = env::var("CAMPAIGN_LOG") {
                let name = format!("{log}/{}.log", point.to_string().replace([':', '@'], "-"));
                let _ = std::fs::write(name, format!("{text}\n{}", on.node.daemon_log()));
            }
            report.faults.push(text);
            stage = None;
        }
    }
    if let Some(stage) = stage {
        stage.end();
    }
}

async fn run_point(stage: &mut Stage, point: &Point) -> Outcome {
    let kill = point.fault == Fault::Kill;
    let tolerance = Tolerance {
        broken_start: !kill || point.target != Target::Daemon,
        errors: !kill || point.target == Target::Children,
    };
    let name = format!("p{}", point.to_string().replace([':', '@', '_'], "-").to_lowercase());
    let mut led = Led::new(point.life, name, tolerance);
    let probe = (!kill).then(|| Probe::start(stage));
    let trace = match point.life {
        Life::Restart | Life::ColdStart => start_traced(stage, &mut led, point.life, Some(point)).await,
        Life::Pod | Life::Image => {
            for step in 0..point.step {
                led.step(stage, step).await;
            }
            stage.tracer = Some(attach(stage, point.target, Some(point)));
            for step in point.step..point.life.steps() {
                led.step(stage, step).await;
            }
            stage.detach();
            std::mem::take(&mut stage.trace)
        }
    };
    // A daemon that was killed by its last call may still be on its way to its end.
    stage.wait_for_traced_daemon().await;
    stage.revive();
    let slowest_exec = match probe {
        Some(probe) => probe.longest().await,
        None => Duration::ZERO,
    };
    let injected = strace::injected(&trace);
    if matches!(point.fault, Fault::Delay(_))
        && slowest_exec > EXEC_MAX
        && matches!(point.life, Life::Pod | Life::Image)
    {
        stage.fault(format!("an exec of the bystander took {} ms", slowest_exec.as_millis()));
    }
    stage.check().await;
    if !stage.faults.is_empty() {
        stage.fault(format!("the calls: {injected:?}"));
    }
    Outcome { injected: !injected.is_empty(), slowest_exec }
}
