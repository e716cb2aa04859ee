//! Containers that attack the engine, next to other pods that are created, probed and stopped, and whose logs are
//! checked.
//!
//! Every attacker is a pod with the limits that a kubelet sets: a CPU limit of 0.2, a CPU request of 0.1 (the shares of
//! a victim), 200 processes, and 128 MiB. The test machine has two CPUs, and 27 attackers at once would use more than
//! four: without limits, the victims would measure the scheduler. Daemon and monitor are in the root cgroup, like
//! system services.
//!
//! An attacker repeats a cycle: it is run, attacks for a while, and is stopped and removed without leaving anything.
//! Faults are: a request that times out, or an attacker that cannot be removed; a probe of a victim that fails or is
//! late, a log that does not grow or lacks a line, a restart; a daemon or a monitor that exited or grew; anything
//! leaked on the node; a file of the node that was read or changed.

mod attack;
mod cycle;
mod drive;
mod without_engine;

use std::{
    collections::BTreeSet,
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use attack::{ATTACKS, Attack};
use cycle::{AttackContext, CycleTimes};
use system_tests::{Node, Options};
use tokio::task::JoinSet;

use crate::{
    Client, Record, Stop, Summary,
    cgroups::{self, PodLimits},
    image, leftovers,
    namespaces::NodeNamespaces,
    programs::Programs,
    random::Random,
    victim::{self, Victim},
};

/// Content of a file that no container may read or change.
const SECRET: &str = "a secret of the node";
/// How long the removal of the attackers may take, so that a hung engine does not leave them on the machine.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(100);
/// Maximum growth of daemon and monitor that stays after the campaign.
const GROWTH_MAX_KIB: u64 = 64 << 10;
const ATTACKER: PodLimits = PodLimits { pids: 200, memory: 128 << 20, cpu_quota: 20_000, cpu_shares: 102 };
const VICTIM: PodLimits = PodLimits { pids: 100, memory: 64 << 20, cpu_quota: 100_000, cpu_shares: 102 };

/// Options of the campaign.
#[derive(Clone, Debug, clap::Args)]
pub struct Plan {
    /// Run only these attackers
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Skip these attackers
    #[arg(long, value_delimiter = ',')]
    pub skip: Vec<String>,
    /// Number of pods that must not be affected
    #[arg(long, default_value_t = 50)]
    pub victims: usize,
    /// Duration of the attack
    #[arg(long, default_value_t = 10.0)]
    pub minutes: f64,
    /// Run one attacker after another, each for its share of the time, instead of all at once
    #[arg(long)]
    pub apart: bool,
    /// Seconds that an attacker attacks before it is removed and starts again
    #[arg(long, default_value_t = 10.0)]
    pub hold: f64,
    /// Duration of the undisturbed measurement in seconds
    #[arg(long, default_value_t = 20.0)]
    pub quiet: f64,
    /// Interval of the probes of a victim in milliseconds
    #[arg(long, default_value_t = 1000)]
    pub period: u64,
    /// Number of files that the attacker `files` creates
    #[arg(long, default_value_t = 200_000)]
    pub files: u32,
    /// Bound for the 99th percentile of the execs of victims, as a multiple of the undisturbed one
    #[arg(long, default_value_t = 3.0)]
    pub factor: f64,
    /// Bound for the slowest exec of a victim in seconds
    #[arg(long, default_value_t = 1.0)]
    pub slowest: f64,
    /// Bound for the time between two new lines in the log of a victim in seconds; it prints ten lines per second
    #[arg(long, default_value_t = 5.0)]
    pub log_gap: f64,
    /// CPU limit of all attackers together; by default each has a limit of 0.2, which is more than a small machine has:
    /// compare with --control
    #[arg(long)]
    pub processors: Option<f64>,
    /// CPU shares of an attacker; the kubelet sets 2 for a pod without a request
    #[arg(long, default_value_t = ATTACKER.cpu_shares)]
    pub shares: u32,
    /// Instead of the attackers, run the same number of containers with the same limits that only use CPU time, to
    /// measure the effect of the scheduler on the victims
    #[arg(long)]
    pub control: bool,
    /// Seed of random choices
    #[arg(long, env = "CAMPAIGN_SEED", default_value_t = 1)]
    pub seed: u64,
}

impl Plan {
    /// The short form, which `make test` runs: every attacker once for a few seconds, without bounds that a busy
    /// machine would exceed, and without the attacker whose stop takes a minute.
    pub fn short() -> Self {
        Self {
            only: Vec::new(),
            skip: vec!["fuse-stuck".to_owned()],
            victims: 4,
            minutes: 0.0,
            apart: false,
            hold: 3.0,
            quiet: 1.0,
            period: 100,
            files: 10_000,
            factor: f64::INFINITY,
            slowest: 5.0,
            // Shorter than the cycle of an attacker: otherwise a log that continues only after the attacker was removed
            // would not be detected.
            log_gap: 2.5,
            processors: None,
            shares: ATTACKER.cpu_shares,
            control: false,
            seed: 1,
        }
    }

    /// Returns the limits of an attacker.
    fn limits(&self) -> PodLimits {
        let attackers = if self.apart { 1 } else { self.attacks().map_or(1, |attacks| attacks.len().max(1)) };
        let share = |cpus: f64| (cpus * 100_000.0 / attackers as f64) as u32;
        let cpu_quota = self.processors.map_or(ATTACKER.cpu_quota, share).max(1000);
        PodLimits { cpu_quota, cpu_shares: self.shares, ..ATTACKER }
    }

    fn attacks(&self) -> Result<Vec<Attack>, String> {
        let is_unknown = |name: &&String| !ATTACKS.iter().any(|attack| attack.name == **name);
        if let Some(name) = self.only.iter().chain(&self.skip).find(is_unknown) {
            let names: Vec<_> = ATTACKS.iter().map(|attack| attack.name).collect();
            return Err(format!("unknown attacker {name}; known: {}", names.join(", ")));
        }
        let contains = |list: &[String], attack: &Attack| list.iter().any(|name| name == attack.name);
        let is_selected =
            |attack: &&Attack| (self.only.is_empty() || contains(&self.only, attack)) && !contains(&self.skip, attack);
        let attacks = ATTACKS.iter().filter(is_selected).copied();
        Ok(if self.control { attacks.map(Attack::only_spins).collect() } else { attacks.collect() })
    }
}

/// Runs the campaign, prints its results, and returns the faults.
///
/// # Errors
/// If an attacker is unknown.
///
/// # Panics
/// If the node or a victim cannot be started.
pub async fn run(plan: &Plan) -> Result<Vec<String>, String> {
    let attacks = plan.attacks()?;
    println!("hostile: seed {}, {} attackers, {} victims", plan.seed, attacks.len(), plan.victims);
    let time = plan.minutes * 60.0;
    if !plan.apart {
        let mut campaign = Campaign::prepare(plan).await;
        campaign.attack(&attacks, Duration::from_secs_f64(time)).await;
        return Ok(if campaign.is_broken { campaign.abandon().await } else { campaign.finish().await });
    }
    let part = Duration::from_secs_f64(time / attacks.len() as f64);
    let mut faults = Vec::new();
    let mut idle_node = None;
    for attack in &attacks {
        let mut campaign = match idle_node.take() {
            Some(campaign) => campaign,
            None => Campaign::prepare(plan).await,
        };
        campaign.attack(&[*attack], part).await;
        // A node with faults is not used for the next attack.
        if campaign.is_broken || campaign.record.fault_count() + campaign.without_engine.fault_count() > 0 {
            faults.extend(campaign.abandon().await);
        } else {
            idle_node = Some(campaign);
        }
    }
    if let Some(campaign) = idle_node {
        faults.extend(campaign.finish().await);
    }
    println!("hostile: {} faults in total", faults.len());
    Ok(faults)
}

struct Campaign<'a> {
    plan: &'a Plan,
    /// Must be dropped before the node: its namespaces are not released while processes are frozen.
    _thaw: cgroups::ThawOnDrop,
    node: Node,
    client: Client,
    record: Arc<Record>,
    /// Measurements of processes that are started without the engine.
    without_engine: Arc<Record>,
    before: BTreeSet<String>,
    victims: Vec<Victim>,
    context: AttackContext,
    programs: Programs,
    undisturbed: Summary,
    /// Whether the daemon or the monitor exited.
    is_broken: bool,
    /// Stops the probes, the pods that are created repeatedly, and the checks of the logs.
    stop: Stop,
    probes: JoinSet<()>,
    other_pods: JoinSet<usize>,
}

impl<'a> Campaign<'a> {
    async fn prepare(plan: &'a Plan) -> Self {
        let node = Node::with(Options::default());
        image::load(&node);
        let mut client = Client::connect(&node).await.expect("connect to the daemon");
        let parent = node.cgroup_parent();
        cgroups::create(
            &parent,
            "victims",
            PodLimits { cpu_quota: 200_000, memory: 4 << 30, pids: 20_000, cpu_shares: 1024 },
        )
        .expect("create the cgroup of the victims");
        let victim_pod = |name: &str| {
            let group =
                cgroups::create(&format!("{parent}/victims"), name, VICTIM).expect("create the cgroup of a victim");
            victim::pod(&node, name, &group)
        };
        // The first pod creates objects that the node keeps.
        let first =
            Victim::run(&mut client, victim_pod("first"), 0, Duration::from_millis(10)).await.expect("run a pod");
        first.finish(&mut client).await.expect("remove a pod");
        let before = leftovers::state(&node);
        let mut victims = Vec::new();
        for number in 0..plan.victims {
            let pod = victim_pod(&format!("victim{number}"));
            victims
                .push(Victim::run(&mut client, pod, number, Duration::from_millis(100)).await.expect("run a victim"));
        }
        let secret = node.dir.path().join("secret");
        fs::write(&secret, SECRET).expect("write the secret");
        let context = AttackContext {
            namespaces: NodeNamespaces::of(&node),
            client: Client::connect(&node).await.expect("connect to the daemon"),
            dir: node.dir.path().to_owned(),
            node_parent: parent,
            limits: plan.limits(),
            secret,
            port: streaming_port(&mut client, &victims[0].id).await,
            victim: victims[0].id.clone(),
            files: plan.files,
        };
        let programs = Programs::of(&node);
        let mut campaign = Self {
            plan,
            _thaw: cgroups::ThawOnDrop(node.cgroup_parent()),
            node,
            client,
            record: Arc::default(),
            without_engine: Arc::default(),
            before,
            victims,
            context,
            programs,
            undisturbed: Summary::default(),
            is_broken: false,
            stop: Stop::default(),
            probes: JoinSet::new(),
            other_pods: JoinSet::new(),
        };
        campaign.start_probes();
        campaign.measure_undisturbed().await;
        campaign
    }

    fn start_probes(&mut self) {
        for victim in &self.victims {
            let random = Random::new(self.plan.seed * 1000 + victim.number as u64);
            self.probes.spawn(victim::probe_until(
                self.stop.clone(),
                self.record.clone(),
                self.client.clone(),
                victim.clone(),
                random,
                Duration::from_millis(self.plan.period),
            ));
        }
        let parent = cgroups::create(&format!("{}/victims", self.context.node_parent), "without-engine", VICTIM);
        self.probes.spawn(without_engine::run_until(
            self.stop.clone(),
            self.without_engine.clone(),
            parent.expect("create a cgroup with the limits of a victim"),
            self.context.dir.join("image/added/bin/attacker"),
        ));
        let bound = Duration::from_secs_f64(self.plan.log_gap);
        let (victims, record) = (self.victims.clone(), self.record.clone());
        self.probes.spawn(victim::watch_logs_until(self.stop.clone(), record, victims, bound));
        let parent = format!("{}/victims", self.context.node_parent);
        let logs = self.context.dir.join("logs");
        let plan = move |number| crate::PodPlan {
            name: format!("other{number}"),
            cgroup_parent: parent.clone(),
            logs: logs.join(format!("other{number}")),
            ..crate::PodPlan::default()
        };
        let pause = Duration::from_millis(self.plan.period);
        self.other_pods.spawn(victim::run_pods_until(
            self.stop.clone(),
            self.record.clone(),
            self.client.clone(),
            plan,
            pause,
        ));
    }

    /// Measures the victims without attackers.
    async fn measure_undisturbed(&mut self) {
        let begin = Instant::now();
        tokio::time::sleep(Duration::from_secs_f64(self.plan.quiet)).await;
        self.undisturbed = self.record.between(begin, Instant::now());
        self.programs = Programs::of(&self.node);
        let log_gap = self.record.take_longest_log_gap().as_secs_f64();
        println!("{:>16}  {}  longest log gap {log_gap:.2} s", "undisturbed", self.undisturbed);
        println!("{:>16}  {}  without the engine", "", self.without_engine.between(begin, Instant::now()));
    }

    /// Runs these attackers at the same time for this duration.
    async fn attack(&mut self, attacks: &[Attack], time: Duration) {
        let (begin, first_fault) = (Instant::now(), self.record.fault_count());
        let hold = Duration::from_secs_f64(self.plan.hold);
        let mut running = JoinSet::new();
        for &attack in attacks {
            let (context, record) = (self.context.clone(), self.record.clone());
            running.spawn(async move {
                let mut cycles = Vec::new();
                while cycles.is_empty() || begin.elapsed() < time {
                    cycles.push(cycle::run(&context, &record, &attack, cycles.len(), hold).await);
                }
                (attack.name, cycles)
            });
        }
        let mut attackers = Vec::new();
        while !running.is_empty() {
            let finished = tokio::time::timeout(Duration::from_millis(500), running.join_next()).await;
            attackers.extend(finished.ok().flatten().and_then(Result::ok));
            let is_overdue = begin.elapsed() > time + hold + REMOVAL_TIMEOUT;
            let overdue = || Err("the attackers are not removed".to_owned());
            if let Err(fault) = if is_overdue { overdue() } else { self.programs.check() } {
                self.record.fault(fault);
                self.is_broken = true;
                running.shutdown().await;
            }
        }
        let summary = self.record.between(begin, Instant::now());
        let name = if attacks.len() == 1 { attacks[0].name } else { "all at once" };
        let over = summary.over(self.undisturbed.per_mille(990) * 3);
        let log_gap = self.record.take_longest_log_gap().as_secs_f64();
        println!("{name:>16}  {summary}  {over} over 3 × p99  longest log gap {log_gap:.2} s");
        println!("{:>16}  {}  without the engine", "", self.without_engine.between(begin, Instant::now()));
        if attackers.len() > 1 {
            attackers.iter().for_each(|(name, cycles)| print_cycles(name, cycles));
        } else if let Some((_, cycles)) = attackers.first() {
            print_cycles("", cycles);
        }
        self.check(name, &summary);
        let faults = self.record.fault_count() - first_fault;
        if faults > 0 {
            println!("{:>16}  {faults} faults", "");
        }
    }

    fn check(&self, name: &str, summary: &Summary) {
        let undisturbed = self.undisturbed.per_mille(990);
        let bound = undisturbed.as_secs_f64() * self.plan.factor;
        if summary.per_mille(990).as_secs_f64() > bound {
            self.record.fault(format!("{name}: execs of victims: {summary}; undisturbed p99 {undisturbed:?}"));
        }
        if summary.max().as_secs_f64() > self.plan.slowest {
            self.record.fault(format!("{name}: an exec of a victim took {:?}", summary.max()));
        }
        if summary.count() == 0 {
            self.record.fault(format!("{name}: no probe of a victim completed"));
        }
        if fs::read_to_string(&self.context.secret).ok().as_deref() != Some(SECRET) {
            self.record.fault(format!("{name}: a file of the node was changed"));
            let _ = fs::write(&self.context.secret, SECRET);
        }
    }

    /// Stops the campaign without checking for leaks. Returns the faults.
    async fn abandon(mut self) -> Vec<String> {
        self.probes.shutdown().await;
        self.other_pods.shutdown().await;
        // These processes cannot be killed, and the namespaces of the node are not released before they exit.
        for attack in ATTACKS.iter().filter(|attack| attack.unkillable) {
            cycle::release(&self.context, attack).await;
        }
        self.faults()
    }

    async fn finish(mut self) -> Vec<String> {
        self.stop.set();
        while self.probes.join_next().await.is_some() {}
        let mut other_pods = 0;
        while let Some(count) = self.other_pods.join_next().await {
            other_pods += count.unwrap_or(0);
        }
        for victim in &self.victims {
            if let Err(fault) = victim.check_running(&mut self.client).await {
                self.record.fault(fault);
            }
        }
        if let Err(fault) = self.programs.check_memory(GROWTH_MAX_KIB).await {
            self.record.fault(fault);
        }
        print!("{}", self.programs);
        let (lines, dropped) = victim::finish_all(&self.record, &self.client, self.victims.split_off(0)).await;
        println!("{other_pods} other pods; {lines} lines of victims in order, {dropped} dropped");
        if dropped > 0 {
            self.record.fault(format!("{dropped} lines of victims were dropped"));
        }
        self.check_leftovers();
        let faults = self.faults();
        println!("hostile: {} faults", faults.len());
        faults
    }

    fn faults(&self) -> Vec<String> {
        self.record.faults_from(0).into_iter().chain(self.without_engine.faults_from(0)).collect()
    }

    fn check_leftovers(&self) {
        for name in (0..self.plan.victims).map(|number| format!("victims/victim{number}")) {
            cgroups::remove(&format!("{}/{name}", self.context.node_parent));
        }
        for name in ["victims/without-engine", "victims/first", "victims", ""] {
            for leaked in cgroups::remove(format!("{}/{name}", self.context.node_parent).trim_end_matches('/')) {
                self.record.fault(format!("leaked cgroup {}", leaked.display()));
            }
        }
        for leaked in leftovers::leaked_since(&self.node, &self.before, Duration::from_secs(20)) {
            self.record.fault(format!("leaked on the node: {leaked}"));
        }
    }
}

fn print_cycles(name: &str, cycles: &[CycleTimes]) {
    let longest = |time: fn(&CycleTimes) -> Duration| cycles.iter().map(time).max().unwrap_or_default().as_secs_f64();
    let (start, removal) = (longest(|times| times.start), longest(|times| times.removal));
    println!("{name:>16}  {} cycles, slowest start {start:.2} s, slowest removal {removal:.2} s", cycles.len());
}

/// Returns the port of the streaming server, from the URL of an exec session.
async fn streaming_port(client: &mut Client, id: &str) -> u16 {
    let request = cri_proto::v1::ExecRequest {
        container_id: id.to_owned(),
        cmd: vec!["true".into()],
        stdout: true,
        ..Default::default()
    };
    let url = client.runtime.exec(request).await.expect("a session").into_inner().url;
    let authority = url.split('/').nth(2).expect("an authority");
    authority.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
}
