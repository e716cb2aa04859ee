use std::{
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use system_tests::Node;
use tokio::task::JoinSet;

use crate::{Client, ContainerPlan, PodPlan, Record, Stop, latency::Sample, log_check, random::Random};

/// Bound for requests to victims that change something: for a broken run, not a measure.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between two checks of the victims' logs.
const LOG_POLL: Duration = Duration::from_millis(100);

/// A pod of one container that prints numbered lines until it is stopped.
#[derive(Clone, Debug)]
pub(crate) struct Victim {
    /// Number in the campaign.
    pub(crate) number: usize,
    /// Its pod.
    pub(crate) pod: PodPlan,
    /// The pod's id.
    pub(crate) pod_id: String,
    /// The container's id.
    pub(crate) id: String,
    /// Whether nobody may have seen its end: daemon and monitor died when they could not write what they knew.
    pub(crate) may_end_unseen: bool,
    /// Whether it ends while its log cannot be written.
    pub(crate) may_end_cut: bool,
    /// Whether SIGKILL may end it: it is stopped while it waits until its output is read.
    pub(crate) may_be_killed: bool,
    started_at: i64,
}

impl Victim {
    /// Runs a victim that prints a line at this period.
    ///
    /// # Errors
    /// What the daemon answered.
    pub(crate) async fn run(
        client: &mut Client,
        pod: PodPlan,
        number: usize,
        period: Duration,
    ) -> Result<Self, String> {
        Self::run_container(client, pod, container(period), number).await
    }

    /// Runs a victim with a container that was changed after [`container`] made it.
    ///
    /// # Errors
    /// What the daemon answered.
    pub(crate) async fn run_container(
        client: &mut Client,
        pod: PodPlan,
        container: ContainerPlan,
        number: usize,
    ) -> Result<Self, String> {
        let (pod_id, id) = client.run(&pod, &container, PATIENCE).await?;
        let started_at = client.container(&id, PATIENCE).await?.started_at;
        let victim = Self {
            number,
            pod,
            pod_id,
            id,
            may_end_unseen: false,
            may_end_cut: false,
            may_be_killed: false,
            started_at,
        };
        // Before its first line it takes no SIGTERM.
        let begin = Instant::now();
        while fs::metadata(victim.log()).map_or(0, |metadata| metadata.len()) == 0 {
            if begin.elapsed() > PATIENCE {
                return Err(format!("victim {number}: its log has no line"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(victim)
    }

    /// Its log file.
    pub(crate) fn log(&self) -> PathBuf {
        let log = self.pod.logs.join("victim.log");
        if self.pod.root.as_os_str().is_empty() {
            return log;
        }
        self.pod.root.join(log.strip_prefix("/").unwrap_or(&log))
    }

    /// Executes a probe in it and checks the output.
    ///
    /// # Errors
    /// What went wrong.
    pub(crate) async fn probe(&self, client: &mut Client, within: Duration) -> Result<Duration, String> {
        let word = format!("victim-{}", self.number);
        let output = client.exec(&self.id, &["/bin/attacker", "probe", &word], 60, within).await;
        let output = output.map_err(|error| format!("victim {}: {error}", self.number))?;
        if output.code != 0 || output.stdout != format!("{word}\n").as_bytes() {
            return Err(format!("victim {}: a probe printed {output:?}", self.number));
        }
        Ok(output.took)
    }

    /// Checks that it runs, and was not restarted.
    ///
    /// # Errors
    /// What it is instead.
    pub(crate) async fn check_running(&self, client: &mut Client) -> Result<(), String> {
        let status = client.container(&self.id, PATIENCE).await?;
        if status.state() == cri_proto::v1::ContainerState::ContainerRunning && status.started_at == self.started_at {
            return Ok(());
        }
        Err(format!("victim {}: {status:?}", self.number))
    }

    /// Stops it, checks the exit code, and removes it; returns whether SIGKILL ended it, which
    /// [`Victim::may_be_killed`] allows.
    ///
    /// # Errors
    /// What went wrong.
    pub(crate) async fn end(&self, client: &mut Client) -> Result<bool, String> {
        let named = |error| format!("victim {}: {error}", self.number);
        client.stop(&self.id, 30, PATIENCE).await.map_err(named)?;
        let status = client.container(&self.id, PATIENCE).await.map_err(named)?;
        let killed = self.may_be_killed && status.exit_code == 128 + 9 && status.reason != "OOMKilled";
        if status.exit_code != 7 && !killed && !(self.may_end_unseen && status.reason == "Unknown") {
            return Err(named(format!("exit code {} ({} {})", status.exit_code, status.reason, status.message)));
        }
        client.remove_pod(&self.pod_id, PATIENCE).await.map_err(named)?;
        Ok(killed)
    }

    /// [`Victim::end`], and checks that its log is complete; returns lines and dropped lines.
    ///
    /// # Errors
    /// What went wrong.
    pub(crate) async fn finish(&self, client: &mut Client) -> Result<(u64, u64), String> {
        let named = |error| format!("victim {}: {error}", self.number);
        let killed = self.end(client).await?;
        let log = log_check::check(&self.log()).map_err(named)?;
        if !log.complete && !self.may_end_cut && !killed {
            return Err(named(format!("the end of its log is missing: {log:?}")));
        }
        Ok((log.lines, log.dropped))
    }
}

/// A victim's pod.
pub(crate) fn pod(node: &Node, name: &str, cgroup_parent: &str) -> PodPlan {
    PodPlan {
        name: name.to_owned(),
        cgroup_parent: cgroup_parent.to_owned(),
        logs: node.logs().join(name),
        root: PathBuf::from(format!("/proc/{}/root", node.first())),
        ..PodPlan::default()
    }
}

/// A victim's container.
pub(crate) fn container(period: Duration) -> ContainerPlan {
    ContainerPlan {
        name: "victim".into(),
        command: vec!["/bin/attacker".into(), "lines".into(), period.as_millis().to_string()],
        cpu_shares: 1024,
        ..ContainerPlan::default()
    }
}

/// Probes a victim at this period until asked to stop; each failure is a fault.
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
        let at = Instant::now();
        match victim.probe(&mut client, Duration::from_secs(20)).await {
            Ok(took) => record.sample(Sample { at, took }),
            Err(fault) => {
                record.sample(Sample { at, took: at.elapsed() });
                record.fault(fault);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        tokio::time::sleep(period.saturating_sub(at.elapsed())).await;
    }
}

/// Checks that the logs of these victims grow, until asked to stop; a log without a new line for longer than the bound
/// is a fault, reported once until the log grows again.
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

/// Leads whole lives of pods until asked to stop: run, probe, stop, check the log, remove. Returns how many.
pub(crate) async fn live_until(
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
        let life = async {
            let victim = Victim::run(&mut client, plan(number), 10_000 + number, Duration::from_millis(5)).await?;
            for _ in 0..3 {
                victim.probe(&mut client, Duration::from_secs(20)).await?;
            }
            victim.finish(&mut client).await
        };
        if let Err(fault) = life.await {
            record.fault(fault);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        tokio::time::sleep(pause).await;
    }
    unreachable!("numbers do not end")
}

/// Stops, checks and removes all victims, eight at a time; returns lines and dropped lines.
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
            Some(Ok(Ok(counted))) => {
                lines += counted.0;
                dropped += counted.1;
            }
            Some(Ok(Err(fault))) => record.fault(fault),
            Some(Err(error)) => record.fault(format!("a task of the campaign: {error}")),
        }
    }
}
