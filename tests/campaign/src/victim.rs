use std::{
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use system_tests::Node;
use tokio::task::JoinSet;

use crate::{Client, ContainerPlan, PodPlan, Record, Stop, latency::Sample, log_check, random::Random};

/// Timeout for requests that change a victim; only a bound for failing runs.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which the logs of victims are checked.
const LOG_POLL: Duration = Duration::from_millis(100);

/// A pod with one container that prints numbered lines until it is stopped.
#[derive(Clone, Debug)]
pub(crate) struct Victim {
    /// Number in the campaign.
    pub(crate) number: usize,
    /// Configuration of its pod.
    pub(crate) pod: PodPlan,
    /// Id of the pod.
    pub(crate) pod_id: String,
    /// Id of the container.
    pub(crate) id: String,
    /// Whether its exit code may be unknown, because daemon and monitor were killed while they could not write state.
    pub(crate) may_exit_unobserved: bool,
    /// Whether its last lines may be missing, because it exits while its log cannot be written.
    pub(crate) may_lose_last_lines: bool,
    /// Whether it may be ended by SIGKILL, because it is stopped while it is blocked on its output.
    pub(crate) may_be_killed: bool,
    started_at: i64,
}

impl Victim {
    /// Runs a victim that prints lines at this interval.
    ///
    /// # Errors
    /// The error of the daemon.
    pub(crate) async fn run(
        client: &mut Client,
        pod: PodPlan,
        number: usize,
        period: Duration,
    ) -> Result<Self, String> {
        Self::run_container(client, pod, container(period), number).await
    }

    /// Runs a victim with a modified configuration of [`container`].
    ///
    /// # Errors
    /// The error of the daemon.
    pub(crate) async fn run_container(
        client: &mut Client,
        pod: PodPlan,
        container: ContainerPlan,
        number: usize,
    ) -> Result<Self, String> {
        let (pod_id, id) = client.run(&pod, &container, REQUEST_TIMEOUT).await?;
        let started_at = client.container(&id, REQUEST_TIMEOUT).await?.started_at;
        let victim = Self {
            number,
            pod,
            pod_id,
            id,
            may_exit_unobserved: false,
            may_lose_last_lines: false,
            may_be_killed: false,
            started_at,
        };
        // It handles SIGTERM only after its first line.
        let start = Instant::now();
        while fs::metadata(victim.log()).map_or(0, |metadata| metadata.len()) == 0 {
            if start.elapsed() > REQUEST_TIMEOUT {
                return Err(format!("victim {number}: its log is empty"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(victim)
    }

    /// Returns the path of its log file.
    pub(crate) fn log(&self) -> PathBuf {
        let log = self.pod.logs.join("victim.log");
        if self.pod.root.as_os_str().is_empty() {
            return log;
        }
        self.pod.root.join(log.strip_prefix("/").unwrap_or(&log))
    }

    /// Executes a probe in the container and checks its output. Returns its duration.
    ///
    /// # Errors
    /// A failed or wrong probe.
    pub(crate) async fn probe(&self, client: &mut Client, within: Duration) -> Result<Duration, String> {
        let word = format!("victim-{}", self.number);
        let output = client.exec(&self.id, &["/bin/attacker", "probe", &word], 60, within).await;
        let output = output.map_err(|error| format!("victim {}: {error}", self.number))?;
        if output.code != 0 || output.stdout != format!("{word}\n").as_bytes() {
            return Err(format!("victim {}: a probe printed {output:?}", self.number));
        }
        Ok(output.duration)
    }

    /// Checks that the container is running and was not restarted.
    ///
    /// # Errors
    /// Its status, if it is not.
    pub(crate) async fn check_running(&self, client: &mut Client) -> Result<(), String> {
        let status = client.container(&self.id, REQUEST_TIMEOUT).await?;
        if status.state() == cri_proto::v1::ContainerState::ContainerRunning && status.started_at == self.started_at {
            return Ok(());
        }
        Err(format!("victim {}: {status:?}", self.number))
    }

    /// Stops the container, checks its exit code, and removes the pod. Returns whether it was ended by SIGKILL, which
    /// [`Victim::may_be_killed`] allows.
    ///
    /// # Errors
    /// A failed request or a wrong exit code.
    pub(crate) async fn stop_and_remove(&self, client: &mut Client) -> Result<bool, String> {
        let with_number = |error| format!("victim {}: {error}", self.number);
        client.stop(&self.id, 30, REQUEST_TIMEOUT).await.map_err(with_number)?;
        let status = client.container(&self.id, REQUEST_TIMEOUT).await.map_err(with_number)?;
        let killed = self.may_be_killed && status.exit_code == 128 + 9 && status.reason != "OOMKilled";
        if status.exit_code != 7 && !killed && !(self.may_exit_unobserved && status.reason == "Unknown") {
            return Err(with_number(format!("exit code {} ({} {})", status.exit_code, status.reason, status.message)));
        }
        client.remove_pod(&self.pod_id, REQUEST_TIMEOUT).await.map_err(with_number)?;
        Ok(killed)
    }

    /// Stops and removes the victim, and checks that its log is complete. Returns the numbers of lines and of dropped
    /// lines.
    ///
    /// # Errors
    /// As for [`Victim::stop_and_remove`], or a line that is missing or duplicated.
    pub(crate) async fn finish(&self, client: &mut Client) -> Result<(u64, u64), String> {
        let with_number = |error| format!("victim {}: {error}", self.number);
        let killed = self.stop_and_remove(client).await?;
        let log = log_check::check(&self.log()).map_err(with_number)?;
        if !log.complete && !self.may_lose_last_lines && !killed {
            return Err(with_number(format!("the end of its log is missing: {log:?}")));
        }
        Ok((log.lines, log.dropped))
    }
}

/// Returns the configuration of the pod of a victim.
pub(crate) fn pod(node: &Node, name: &str, cgroup_parent: &str) -> PodPlan {
    PodPlan {
        name: name.to_owned(),
        cgroup_parent: cgroup_parent.to_owned(),
        logs: node.logs().join(name),
        root: PathBuf::from(format!("/proc/{}/root", node.init_pid())),
        ..PodPlan::default()
    }
}

/// Returns the configuration of the container of a victim that prints lines at this interval.
pub(crate) fn container(period: Duration) -> ContainerPlan {
    ContainerPlan {
        name: "victim".into(),
        command: vec!["/bin/attacker".into(), "lines".into(), period.as_millis().to_string()],
        cpu_shares: 1024,
        ..ContainerPlan::default()
    }
}

/// Probes a victim at this interval until stopped; each failure is a fault.
pub(crate) async fn probe_until(
    stop: Stop,
    record: Arc<Record>,
    mut client: Client,
    victim: Victim,
    mut random: Random,
    period: Duration,
) {
    let spread = u64::try_from(period.as_millis()).unwrap_or(1000).max(1);
    tokio::time::sleep(Duration::from_millis(random.below(spread))).await;
    while !stop.is_set() {
        let sent = Instant::now();
        match victim.probe(&mut client, Duration::from_secs(20)).await {
            Ok(duration) => record.sample(Sample { sent, duration }),
            Err(fault) => {
                record.sample(Sample { sent, duration: sent.elapsed() });
                record.fault(fault);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        tokio::time::sleep(period.saturating_sub(sent.elapsed())).await;
    }
}

/// Checks that the logs of these victims grow, until stopped. A log without a new line for longer than the bound is a
/// fault, which is reported once until the log grows again.
pub(crate) async fn watch_logs_until(stop: Stop, record: Arc<Record>, victims: Vec<Victim>, bound: Duration) {
    struct Growth {
        length: u64,
        grown_at: Instant,
        is_reported: bool,
    }
    let length = |victim: &Victim| fs::metadata(victim.log()).map_or(0, |metadata| metadata.len());
    let watch = |victim| Growth { length: length(victim), grown_at: Instant::now(), is_reported: false };
    let mut growths: Vec<Growth> = victims.iter().map(watch).collect();
    while !stop.is_set() {
        tokio::time::sleep(LOG_POLL).await;
        for (victim, growth) in victims.iter().zip(&mut growths) {
            let (length, gap) = (length(victim), growth.grown_at.elapsed());
            record.log_gap(gap);
            if length != growth.length {
                *growth = Growth { length, grown_at: Instant::now(), is_reported: false };
            } else if gap > bound && !growth.is_reported {
                growth.is_reported = true;
                record.fault(format!(
                    "victim {}: no new line in its log for {:.1} s",
                    victim.number,
                    gap.as_secs_f64()
                ));
            }
        }
    }
}

/// Runs one pod after another through its life cycle until stopped: run, probe, stop, check the log, remove. Returns
/// their number.
pub(crate) async fn run_pods_until(
    stop: Stop,
    record: Arc<Record>,
    mut client: Client,
    plan: impl Fn(usize) -> PodPlan,
    pause: Duration,
) -> usize {
    for number in 0.. {
        if stop.is_set() {
            return number;
        }
        let life_cycle = async {
            let victim = Victim::run(&mut client, plan(number), 10_000 + number, Duration::from_millis(5)).await?;
            for _ in 0..3 {
                victim.probe(&mut client, Duration::from_secs(20)).await?;
            }
            victim.finish(&mut client).await
        };
        if let Err(fault) = life_cycle.await {
            record.fault(fault);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        tokio::time::sleep(pause).await;
    }
    unreachable!("the range is unbounded")
}

/// Stops, checks and removes all victims, eight at a time. Returns the numbers of lines and of dropped lines.
pub(crate) async fn finish_all(record: &Arc<Record>, client: &Client, victims: Vec<Victim>) -> (u64, u64) {
    let (mut lines, mut dropped) = (0, 0);
    let mut queue = victims.into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < 8
            && let Some(victim) = queue.next()
        {
            let mut client = client.clone();
            running.spawn(async move { victim.finish(&mut client).await });
        }
        match running.join_next().await {
            None => return (lines, dropped),
            Some(Ok(Ok(counts))) => {
                lines += counts.0;
                dropped += counts.1;
            }
            Some(Ok(Err(fault))) => record.fault(fault),
            Some(Err(error)) => record.fault(format!("a task of the campaign failed: {error}")),
        }
    }
}
