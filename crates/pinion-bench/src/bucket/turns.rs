use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use cri_proto::v1::{RemovePodSandboxRequest, StopContainerRequest, StopPodSandboxRequest};
use futures_util::future::join_all;
use tonic::{Response, Status};

use crate::{
    call::limited,
    engine::{Engine, Failure},
    pods::{self, RunningPod, Shape},
    results::{Better, Description, Metric, TurnLog},
    run::Scenario,
};

const RATE: &str = "pods run, stopped and deleted";
const RUN: &str = "run";
const STOP: &str = "stop";
const DELETE: &str = "delete";
/// Timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Threads that each run, stop and delete pods.
pub(super) struct Bucket {
    pub(super) engines: Vec<Engine>,
    pub(super) shape: Shape,
    pub(super) threads: Vec<usize>,
    /// Pods of a thread.
    pub(super) iterations: usize,
    pub(super) rounds: usize,
}

/// The operations of a thread, and those that failed.
#[derive(Default)]
struct Operations {
    times: Vec<(&'static str, Duration)>,
    failures: Vec<(&'static str, String)>,
    /// Whether the engine did not respond. Each further operation would take as long.
    has_timed_out: bool,
}

impl Bucket {
    /// Measures a number of threads. Returns whether the engine responds.
    async fn threads(&self, engine: &Engine, threads: usize, round: usize, log: &mut TurnLog) -> bool {
        let parameter = Some(threads as f64);
        let start = Instant::now();
        let thread = |thread: usize| self.thread(engine, format!("bucket-{threads}-{round}-{thread}"));
        let outcomes = join_all((0..threads).map(thread)).await;
        let wall = start.elapsed();
        for outcome in &outcomes {
            for (operation, time) in &outcome.times {
                log.add_ms(operation, parameter, *time);
            }
        }
        let failed: Vec<_> = outcomes.iter().flat_map(|outcome| &outcome.failures).collect();
        for (operation, cause) in &failed {
            log.fail(operation, parameter, cause);
        }
        match failed.first() {
            None => log.add(RATE, parameter, (threads * self.iterations) as f64 / wall.as_secs_f64()),
            Some((_, cause)) => log.fail(RATE, parameter, cause),
        }
        !outcomes.iter().any(|outcome| outcome.has_timed_out)
    }

    /// Runs, stops and deletes the pods of a thread.
    async fn thread(&self, engine: &Engine, name: String) -> Operations {
        let mut operations = Operations::default();
        for iteration in 0..self.iterations {
            let (mut life, pod) = pods::begin(engine, &self.shape, &format!("{name}-{iteration}")).await;
            let Some(pod) = pod else {
                let cause = life.take_failure().map(|failure| failure.0).unwrap_or_default();
                operations.failures.push((RUN, cause));
                operations.has_timed_out |= life.has_timed_out();
                if operations.has_timed_out {
                    break;
                }
                continue;
            };
            operations.times.push((RUN, life.time()));
            if let Err(failure) = end(engine, &pod, &mut operations.times).await {
                operations.failures.push(failure);
                operations.has_timed_out |= !pods::force_remove(engine, pod.id()).await;
                if operations.has_timed_out {
                    break;
                }
            }
        }
        operations
    }
}

/// Stops and deletes a pod.
async fn end(
    engine: &Engine,
    pod: &RunningPod,
    times: &mut Vec<(&'static str, Duration)>,
) -> Result<(), (&'static str, String)> {
    let mut runtime = engine.runtime.clone();
    // As a kubelet does, and without a grace period: StopPodSandbox alone would have some engines wait for the program.
    let stop = StopContainerRequest { container_id: pod.container().to_owned(), timeout: 0 };
    let stopped = timed(STOP, runtime.stop_container(stop)).await?;
    let stop = StopPodSandboxRequest { pod_sandbox_id: pod.id().to_owned() };
    times.push((STOP, stopped + timed(STOP, runtime.stop_pod_sandbox(stop)).await?));
    let delete = RemovePodSandboxRequest { pod_sandbox_id: pod.id().to_owned() };
    times.push((DELETE, timed(DELETE, runtime.remove_pod_sandbox(delete)).await?));
    Ok(())
}

/// Makes a call. Returns how long it took.
async fn timed<T>(
    operation: &'static str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Duration, (&'static str, String)> {
    let start = Instant::now();
    limited(operation, TIMEOUT, call).await.map_err(|cause| (operation, cause))?;
    Ok(start.elapsed())
}

impl Scenario for Bucket {
    fn description(&self) -> Description {
        let threads: Vec<String> = self.threads.iter().map(usize::to_string).collect();
        let settings = [
            ("image", self.shape.image().to_owned()),
            ("threads", threads.join(", ")),
            ("pods of a thread in a turn", self.iterations.to_string()),
            ("network", self.shape.network().to_owned()),
        ];
        let rate = Metric { better: Better::Higher, ..Metric::lower(RATE, "1/s") };
        Description {
            name: "bucket".to_owned(),
            title: "Threads that run, stop and delete pods".to_owned(),
            work: "Each thread runs a pod with one container (RunPodSandbox, CreateContainer, StartContainer), stops it (StopContainer, StopPodSandbox) and deletes \
                   it (RemovePodSandbox), several times."
                .to_owned(),
            parameter: "threads".to_owned(),
            common: String::new(),
            settings: BTreeMap::from(settings.map(|(name, value)| (name.to_owned(), value))),
            metrics: [rate.headline()]
                .into_iter()
                .chain([RUN, STOP, DELETE].map(|name| Metric::lower(name, "ms")))
                .collect(),
            contestants: self.engines.iter().map(pods::contestant).collect(),
            rounds: self.rounds,
        }
    }

    async fn warm_up(&mut self, contestant: usize) -> Result<(), Failure> {
        let outcome = self.thread(&self.engines[contestant], "bucket-warm".to_owned()).await;
        let first = outcome.failures.into_iter().next();
        first.map_or(Ok(()), |(operation, cause)| Err(Failure(format!("{operation}: {cause}"))))
    }

    async fn turn(&mut self, contestant: usize, round: usize, log: &mut TurnLog) {
        let engine = &self.engines[contestant];
        let mut is_silent = false;
        for threads in &self.threads {
            if is_silent {
                log.fail(RATE, Some(*threads as f64), "not measured: the engine did not respond");
            } else {
                is_silent = !self.threads(engine, *threads, round, log).await;
            }
        }
    }

    async fn clean_up(&mut self) {
        pods::remove_leftovers(&self.engines, &self.shape).await;
    }
}
