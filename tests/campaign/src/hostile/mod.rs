//! Containers that attack the engine, next to pods that are probed, logged, made and stopped.
//!
//! Every attacker is a pod of its own with the limits that a kubelet sets: a fifth of a processor as CPU limit, a tenth
//! as request (the shares of a victim), 200 processes, 128 MiB. The machine of the tests has two processors and 27
//! attackers at once want more than four: without limits the victims would measure the scheduler. Daemon and monitor
//! are in the root cgroup, as system services are.
//!
//! An attacker's life is a cycle: run, attack for a while, be stopped and removed, and leave nothing. What counts as a
//! fault: a request that is not answered in time or an attacker that cannot be removed; a victim's probe that fails or
//! is late, a log that does not grow or misses a line, a restart; a daemon or a monitor that died or grew; anything
//! left on the node; a file of the node that was read or changed.

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
use cycle::{CycleTimes, Field};
use system_tests::{Node, Options};
use tokio::task::JoinSet;

use crate::{
    Client, Record, Stop, Summary,
    groups::{self, PodLimits},
    image,
    inside::Inside,
    leftovers,
    programs::Programs,
    random::Random,
    victim::{self, Victim},
};

/// Content of the file that no container may read or change.
const SECRET: &str = "a secret of the node";
/// How long the attackers' pods may take to end: a hung engine must not leave them on the machine.
const END: Duration = Duration::from_secs(100);
/// Growth of daemon and monitor that is no fault.
const GROWTH_KIB: u64 = 64 << 10;
const ATTACKER: PodLimits = PodLimits { pids: 200, memory: 128 << 20, cpu_quota: 20_000, cpu_shares: 102 };
const VICTIM: PodLimits = PodLimits { pids: 100, memory: 64 << 20, cpu_quota: 100_000, cpu_shares: 102 };

/// How to run the campaign.
#[derive(Clone, Debug, clap::Args)]
pub struct Plan {
    /// Only these attackers, by name
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// All but these attackers
    #[arg(long, value_delimiter = ',')]
    pub skip: Vec<String>,
    /// Pods that must notice nothing
    #[arg(long, default_value_t = 50)]
    pub victims: usize,
    /// Length of the attack
    #[arg(long, default_value_t = 10.0)]
    pub minutes: f64,
    /// One attacker after another, each for its part of the time, instead of all at once
    #[arg(long)]
    pub apart: bool,
    /// Seconds that an attacker attacks before it is removed and begins again
    #[arg(long, default_value_t = 10.0)]
    pub hold: f64,
    /// Seconds of the undisturbed measurement
    #[arg(long, default_value_t = 20.0)]
    pub quiet: f64,
    /// Milliseconds between two probes of a victim
    #[arg(long, default_value_t = 1000)]
    pub period: u64,
    /// How many files the attack with files makes
    #[arg(long, default_value_t = 200_000)]
    pub files: u32,
    /// Bound for the 99th percentile of a victim's exec, as a multiple of the undisturbed one
    #[arg(long, default_value_t = 3.0)]
    pub factor: f64,
    /// Bound in seconds for a victim's slowest exec
    #[arg(long, default_value_t = 1.0)]
    pub slowest: f64,
    /// Bound in seconds for the time between two new lines in a victim's log, which prints ten a second
    #[arg(long, default_value_t = 5.0)]
    pub log_gap: f64,
    /// Processors that all attackers together may use; without it a fifth of one each, which is more than a small
    /// machine has: compare with --control
    #[arg(long)]
    pub processors: Option<f64>,
    /// CPU shares of an attacker; kubelet gives 2 to a pod without a request
    #[arg(long, default_value_t = ATTACKER.cpu_shares)]
    pub shares: u32,
    /// Instead of the attackers, as many containers with their limits that only use processor time: what the machine's
    /// scheduler alone does to the victims
    #[arg(long)]
    pub control: bool,
    /// Seed of random choices
    #[arg(long, env = "CAMPAIGN_SEED", default_value_t = 1)]
    pub seed: u64,
}

impl Plan {
    /// What `make test` runs: every attacker once, for moments, without bounds that a busy machine would break. All but
    /// the one whose stop takes the engine's whole minute.
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
            // Less than an attacker's life, or a log that only continues when the attacker ended would not be noticed.
            log_gap: 2.5,
            processors: None,
            shares: ATTACKER.cpu_shares,
            control: false,
            seed: 1,
        }
    }

    /// Limits of an attacker.
    fn limits(&self) -> PodLimits {
        let attackers = if self.apart { 1 } else { self.attacks().map_or(1, |attacks| attacks.len().max(1)) };
        let share = |processors: f64| (processors * 100_000.0 / attackers as f64) as u32;
        let cpu_quota = self.processors.map_or(ATTACKER.cpu_quota, share).max(1000);
        PodLimits { cpu_quota, cpu_shares: self.shares, ..ATTACKER }
    }

    fn attacks(&self) -> Result<Vec<Attack>, String> {
        let known = |name: &&String| !ATTACKS.iter().any(|attack| attack.name == **name);
        if let Some(name) = self.only.iter().chain(&self.skip).find(known) {
            let names: Vec<_> = ATTACKS.iter().map(|attack| attack.name).collect();
            return Err(format!("there is no attacker {name}: {}", names.join(", ")));
        }
        let named = |list: &[String], attack: &Attack| list.iter().any(|name| name == attack.name);
        let wanted =
            |attack: &&Attack| (self.only.is_empty() || named(&self.only, attack)) && !named(&self.skip, attack);
        let attacks = ATTACKS.iter().filter(wanted).copied();
        Ok(if self.control { attacks.map(Attack::only_spins).collect() } else { attacks.collect() })
    }
}

/// Runs the campaign and prints what it saw; returns the faults.
///
/// # Errors
/// If an attacker is unknown.
///
/// # Panics
/// If there is no node, or no victim on it.
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
    let mut quiet_node = None;
    for attack in &attacks {
        let mut campaign = match quiet_node.take() {
            Some(campaign) => campaign,
            None => Campaign::prepare(plan).await,
        };
        campaign.attack(&[*attack], part).await;
        // What an attack broke is not the next one's.
        if campaign.is_broken || campaign.record.fault_count() + campaign.without_engine.fault_count() > 0 {
            faults.extend(campaign.abandon().await);
        } else {
            quiet_node = Some(campaign);
        }
    }
    if let Some(campaign) = quiet_node {
        faults.extend(campaign.finish().await);
    }
    println!("hostile: {} faults in all", faults.len());
    Ok(faults)
}

struct Campaign<'a> {
    plan: &'a Plan,
    /// Dropped before the node, or its namespaces would not end.
    _thaw: groups::ThawAtEnd,
    node: Node,
    client: Client,
    record: Arc<Record>,
    /// Processes that no engine started.
    without_engine: Arc<Record>,
    before: BTreeSet<String>,
    victims: Vec<Victim>,
    field: Field,
    programs: Programs,
    undisturbed: Summary,
    /// Whether daemon or monitor died.
    is_broken: bool,
    /// Ends probes and lives of victims, and the watch of their logs.
    stop: Stop,
    probes: JoinSet<()>,
    lives: JoinSet<usize>,
}

impl<'a> Campaign<'a> {
    async fn prepare(plan: &'a Plan) -> Self {
        let node = Node::with(Options::default());
        image::load(&node);
        let mut client = Client::connect(&node).await.expect("the daemon answers");
        let parent = node.cgroup_parent();
        groups::make(
            &parent,
            "victims",
            PodLimits { cpu_quota: 200_000, memory: 4 << 30, pids: 20_000, cpu_shares: 1024 },
        )
        .expect("the group of the victims");
        let place = |name: &str| {
            let own = groups::make(&format!("{parent}/victims"), name, VICTIM).expect("the group of a victim");
            victim::pod(&node, name, &own)
        };
        // What a node makes once is there from now on.
        let first = Victim::run(&mut client, place("first"), 0, Duration::from_millis(10)).await.expect("a pod runs");
        first.finish(&mut client).await.expect("a pod ends");
        let before = leftovers::state(&node);
        let mut victims = Vec::new();
        for number in 0..plan.victims {
            let pod = place(&format!("victim{number}"));
            victims
                .push(Victim::run(&mut client, pod, number, Duration::from_millis(100)).await.expect("a victim runs"));
        }
        let secret = node.dir.path().join("secret");
        fs::write(&secret, SECRET).expect("the secret");
        let field = Field {
            inside: Inside::of(&node),
            client: Client::connect(&node).await.expect("the daemon answers"),
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
            _thaw: groups::ThawAtEnd(node.cgroup_parent()),
            node,
            client,
            record: Arc::default(),
            without_engine: Arc::default(),
            before,
            victims,
            field,
            programs,
            undisturbed: Summary::default(),
            is_broken: false,
            stop: Stop::default(),
            probes: JoinSet::new(),
            lives: JoinSet::new(),
        };
        campaign.start_probes();
        campaign.quiet().await;
        campaign
    }

    fn start_probes(&mut self) {
        for victim in &self.victims {
            let random = Random::of_seed(self.plan.seed * 1000 + victim.number as u64);
            self.probes.spawn(victim::probe_until(
                self.stop.clone(),
                self.record.clone(),
                self.client.clone(),
                victim.clone(),
                random,
                Duration::from_millis(self.plan.period),
            ));
        }
        let parent = groups::make(&format!("{}/victims", self.field.node_parent), "without-engine", VICTIM);
        self.probes.spawn(without_engine::run_until(
            self.stop.clone(),
            self.without_engine.clone(),
            parent.expect("a cgroup like a victim's"),
            self.field.dir.join("image/added/bin/attacker"),
        ));
        let bound = Duration::from_secs_f64(self.plan.log_gap);
        let (victims, record) = (self.victims.clone(), self.record.clone());
        self.probes.spawn(victim::watch_logs_until(self.stop.clone(), record, victims, bound));
        let parent = format!("{}/victims", self.field.node_parent);
        let pods = self.field.dir.join("logs");
        let plan = move |number| crate::PodPlan {
            name: format!("life{number}"),
            cgroup_parent: parent.clone(),
            logs: pods.join(format!("life{number}")),
            ..crate::PodPlan::default()
        };
        let pause = Duration::from_millis(self.plan.period);
        self.lives.spawn(victim::live_until(self.stop.clone(), self.record.clone(), self.client.clone(), plan, pause));
    }

    /// Measures without any attacker.
    async fn quiet(&mut self) {
        let begin = Instant::now();
        tokio::time::sleep(Duration::from_secs_f64(self.plan.quiet)).await;
        self.undisturbed = self.record.between(begin, Instant::now());
        self.programs = Programs::of(&self.node);
        let log_gap = self.record.take_longest_log_gap().as_secs_f64();
        println!("{:>16}  {}  longest log gap {log_gap:.2} s", "undisturbed", self.undisturbed);
        println!("{:>16}  {}  without the engine", "", self.without_engine.between(begin, Instant::now()));
    }

    /// Lets these attackers live for this time, all at once.
    async fn attack(&mut self, attacks: &[Attack], time: Duration) {
        let (begin, first_fault) = (Instant::now(), self.record.fault_count());
        let hold = Duration::from_secs_f64(self.plan.hold);
        let mut running = JoinSet::new();
        for &attack in attacks {
            let (field, record) = (self.field.clone(), self.record.clone());
            running.spawn(async move {
                let mut lives = Vec::new();
                while lives.is_empty() || begin.elapsed() < time {
                    lives.push(cycle::run(&field, &record, &attack, lives.len(), hold).await);
                }
                (attack.name, lives)
            });
        }
        let mut lives = Vec::new();
        while !running.is_empty() {
            let ended = tokio::time::timeout(Duration::from_millis(500), running.join_next()).await;
            lives.extend(ended.ok().flatten().and_then(Result::ok));
            let overdue = begin.elapsed() > time + hold + END;
            let late = || Err("the attackers do not end".to_owned());
            if let Err(fault) = if overdue { late() } else { self.programs.check() } {
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
        if lives.len() > 1 {
            lives.iter().for_each(|(name, lives)| print_lives(name, lives));
        } else if let Some((_, lives)) = lives.first() {
            print_lives("", lives);
        }
        self.judge(name, &summary);
        let faults = self.record.fault_count() - first_fault;
        if faults > 0 {
            println!("{:>16}  {faults} faults", "");
        }
    }

    fn judge(&self, name: &str, summary: &Summary) {
        let undisturbed = self.undisturbed.per_mille(990);
        let bound = undisturbed.as_secs_f64() * self.plan.factor;
        if summary.per_mille(990).as_secs_f64() > bound {
            self.record.fault(format!("{name}: the victims' execs: {summary}; undisturbed p99 {undisturbed:?}"));
        }
        if summary.max().as_secs_f64() > self.plan.slowest {
            self.record.fault(format!("{name}: a victim's exec took {:?}", summary.max()));
        }
        if summary.count() == 0 {
            self.record.fault(format!("{name}: no probe of a victim was answered"));
        }
        if fs::read_to_string(&self.field.secret).ok().as_deref() != Some(SECRET) {
            self.record.fault(format!("{name}: a file of the node was changed"));
            let _ = fs::write(&self.field.secret, SECRET);
        }
    }

    /// Ends without a look at what is left; returns the faults.
    async fn abandon(mut self) -> Vec<String> {
        self.probes.shutdown().await;
        self.lives.shutdown().await;
        // Nothing else ends them, and the node's namespaces wait for them.
        for attack in ATTACKS.iter().filter(|attack| attack.unkillable) {
            cycle::release(&self.field, attack).await;
        }
        self.faults()
    }

    async fn finish(mut self) -> Vec<String> {
        self.stop.set();
        while self.probes.join_next().await.is_some() {}
        let mut lives = 0;
        while let Some(count) = self.lives.join_next().await {
            lives += count.unwrap_or(0);
        }
        for victim in &self.victims {
            if let Err(fault) = victim.check_running(&mut self.client).await {
                self.record.fault(fault);
            }
        }
        if let Err(fault) = self.programs.check_memory(GROWTH_KIB) {
            self.record.fault(fault);
        }
        print!("{}", self.programs);
        let (lines, dropped) = victim::finish_all(&self.record, &self.client, self.victims.split_off(0)).await;
        println!("{lives} other lives of pods; {lines} lines of victims in order, {dropped} dropped");
        if dropped > 0 {
            self.record.fault(format!("{dropped} lines of victims were dropped"));
        }
        self.leftovers();
        let faults = self.faults();
        println!("hostile: {} faults", faults.len());
        faults
    }

    fn faults(&self) -> Vec<String> {
        self.record.faults_from(0).into_iter().chain(self.without_engine.faults_from(0)).collect()
    }

    fn leftovers(&self) {
        for name in (0..self.plan.victims).map(|number| format!("victims/victim{number}")) {
            groups::remove(&format!("{}/{name}", self.field.node_parent));
        }
        for name in ["victims/without-engine", "victims/first", "victims", ""] {
            for leaked in groups::remove(format!("{}/{name}", self.field.node_parent).trim_end_matches('/')) {
                self.record.fault(format!("leaked cgroup {}", leaked.display()));
            }
        }
        for leaked in leftovers::since(&self.node, &self.before, Duration::from_secs(20)) {
            self.record.fault(format!("left on the node: {leaked}"));
        }
    }
}

fn print_lives(name: &str, lives: &[CycleTimes]) {
    let longest = |of: fn(&CycleTimes) -> Duration| lives.iter().map(of).max().unwrap_or_default().as_secs_f64();
    let (start, end) = (longest(|times| times.start), longest(|times| times.end));
    println!("{name:>16}  {} lives, slowest start {start:.2} s, slowest end {end:.2} s", lives.len());
}

/// The port of the streaming server, from the URL of an exec session.
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
