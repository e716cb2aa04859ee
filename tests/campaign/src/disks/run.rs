//! One case, from a new node to its end.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use system_tests::{Node, Options};
use tokio::task::JoinSet;

use super::{
    Plan,
    case::{Case, Kind, Role},
    disk::{self, Disk},
};
use crate::{
    Client, PodPlan, Record, Stop, Summary,
    client::is_unanswered,
    image,
    inside::Inside,
    leftovers, log_check,
    programs::Programs,
    random::Random,
    victim::{self, Victim},
};

/// Size of the disks: an image, its layers and a journal have space.
const DISK_MIB: u32 = 192;
/// Size of the state directory's tmpfs.
const STATE: &str = "size=16m,mode=755";
/// Seconds between SIGTERM and SIGKILL of the pod that is stopped while the fault lasts, as kubelet's default.
const STOP_GRACE: i64 = 30;
/// Bound for an answer after the fault's end.
const ANSWER: Duration = Duration::from_secs(90);

struct Run<'a> {
    plan: &'a Plan,
    case: Case,
    /// Dropped before the node: it thaws.
    disk: Option<Disk>,
    node: Node,
    client: Client,
    record: Arc<Record>,
    before: BTreeSet<String>,
    bystanders: Vec<Victim>,
    loaded: Vec<Victim>,
    programs: Programs,
    stop: Stop,
    probes: JoinSet<()>,
    /// Requests about the disk that were sent while it was faulty.
    waiting: JoinSet<(&'static str, Result<(), String>)>,
    /// When the stop of the first pod that uses the disk was requested.
    stop_requested_at: Option<Instant>,
    unready: BTreeSet<String>,
}

/// Runs a case and returns its faults.
pub(super) async fn run(plan: &Plan, case: Case) -> Vec<String> {
    let mut run = Run::prepare(plan, case).await;
    run.start_probes();
    let begin = Instant::now();
    tokio::time::sleep(Duration::from_secs_f64(plan.quiet)).await;
    let quiet = run.record.between(begin, Instant::now());
    run.programs = Programs::of(&run.node);

    let begin = Instant::now();
    run.inject();
    if !plan.kill {
        run.send_requests();
    }
    // The death of the daemon fails what it is doing.
    let lives = (run.case.lets_others_start() && !plan.kill).then(|| run.start_lives());
    run.watch(Duration::from_secs_f64(plan.seconds)).await;
    run.judge(&run.record.between(begin, Instant::now()), &quiet);
    if let Some((stop, lives)) = lives {
        stop.set();
        lives.await.ok();
    }
    run.end_fault();
    run.answers().await;
    run.finish().await
}

impl<'a> Run<'a> {
    async fn prepare(plan: &'a Plan, case: Case) -> Self {
        let mut node = Node::cold(Options::default());
        let inside = Inside::of(&node);
        let at = place(&node, case.role);
        let mut disk = None;
        if case.role == Role::State {
            node.run("mkdir", &["-p", "/run/pinion"]).ok();
            node.run("mount", &["-t", "tmpfs", "-o", STATE, "tmpfs", "/run/pinion"]).ok();
        } else {
            disk = Some(Disk::make(inside, node.dir.path(), &at, DISK_MIB, case.kind == Kind::Stalled));
        }
        node.start_daemon();
        image::load(&node);
        if let (Kind::Lost, Some(disk)) = (case.kind, &mut disk) {
            disk.remember();
        }
        let mut client = Client::connect(&node).await.expect("the daemon answers");
        let first = victim::pod(&node, "first", "");
        let first = Victim::run(&mut client, first, 0, Duration::from_millis(10)).await.expect("a pod runs");
        first.finish(&mut client).await.expect("a pod ends");
        let before = leftovers::state(&node);
        let (mut bystanders, mut loaded) = (Vec::new(), Vec::new());
        for number in 0..plan.victims {
            let pod = victim::pod(&node, &format!("bystander{number}"), "");
            let period = Duration::from_millis(100);
            bystanders.push(Victim::run(&mut client, pod, number, period).await.expect("a bystander runs"));
        }
        for number in 0..plan.loaded {
            let (pod, container) = user_of(&node, case.role, &format!("loaded{number}"));
            let run = Victim::run_container(&mut client, pod, container, 1000 + number);
            let mut victim = run.await.expect("a pod on the disk runs");
            victim.may_end_unseen = plan.kill && case.role == Role::State;
            // The first one is stopped while the fault lasts.
            victim.may_end_cut = number == 0 && case.may_drop_output();
            loaded.push(victim);
        }
        let programs = Programs::of(&node);
        Self {
            plan,
            case,
            disk,
            node,
            client,
            record: Arc::default(),
            before,
            bystanders,
            loaded,
            programs,
            stop: Stop::default(),
            probes: JoinSet::new(),
            waiting: JoinSet::new(),
            stop_requested_at: None,
            unready: BTreeSet::new(),
        }
    }

    fn start_probes(&mut self) {
        self.stop = Stop::default();
        for victim in &self.bystanders {
            self.probes.spawn(victim::probe_until(
                self.stop.clone(),
                self.record.clone(),
                self.client.clone(),
                victim.clone(),
                Random::of_seed(self.plan.seed * 1000 + victim.number as u64),
                Duration::from_millis(self.plan.period),
            ));
        }
    }

    async fn stop_probes(&mut self) {
        self.stop.set();
        while self.probes.join_next().await.is_some() {}
    }

    fn start_lives(&self) -> (Stop, tokio::task::JoinHandle<usize>) {
        let stop = Stop::default();
        let logs = self.node.logs();
        let plan = move |number| PodPlan {
            name: format!("life{number}"),
            logs: logs.join(format!("life{number}")),
            ..PodPlan::default()
        };
        let pause = Duration::from_millis(self.plan.period);
        let (stopping, record, client) = (stop.clone(), self.record.clone(), self.client.clone());
        (stop, tokio::spawn(victim::live_until(stopping, record, client, plan, pause)))
    }

    fn inject(&mut self) {
        let state = Path::new("/run/pinion");
        match (self.case.kind, &mut self.disk) {
            (Kind::Full, None) => disk::fill(Inside::of(&self.node), state),
            (_, None) => unreachable!("a tmpfs is only filled"),
            (Kind::Frozen, Some(disk)) => disk.freeze(),
            (Kind::Stalled, Some(disk)) => disk.stall(),
            (Kind::Slow, Some(disk)) => disk.slow_down(),
            (Kind::Full, Some(disk)) => disk.fill(),
            (Kind::ReadOnly, Some(disk)) => disk.abort(),
            // The disk forgets when it is mounted again.
            (Kind::Lost, Some(_)) => {}
        }
    }

    /// Stops a pod that uses the disk, and runs new ones, without waiting.
    fn send_requests(&mut self) {
        let patience = Duration::from_secs_f64(self.plan.seconds) + ANSWER;
        if let Some(victim) = self.loaded.first() {
            self.stop_requested_at = Some(Instant::now());
            let (mut client, id) = (self.client.clone(), victim.id.clone());
            self.waiting.spawn(async move { ("StopContainer", client.stop(&id, STOP_GRACE, patience).await) });
        }
        for number in 0..self.plan.newcomers {
            let mut client = self.client.clone();
            let (pod, container) = user_of(&self.node, self.case.role, &format!("newcomer{number}"));
            self.waiting.spawn(async move { ("newcomer", client.run(&pod, &container, patience).await.map(drop)) });
        }
    }

    /// Watches the node while the fault lasts; in the middle of it kills both programs if the plan says so.
    async fn watch(&mut self, time: Duration) {
        let begin = Instant::now();
        let mut kill = self.plan.kill;
        while begin.elapsed() < time {
            let second = Duration::from_secs_f64(self.plan.slowest);
            match self.client.unready(second).await {
                Ok(conditions) => self.unready.extend(conditions),
                Err(fault) => self.record.fault(fault),
            }
            if let Err(fault) = self.client.listed(second).await {
                self.record.fault(fault);
            }
            if let Err(fault) = self.programs.check() {
                self.record.fault(fault);
                return;
            }
            if kill && begin.elapsed() > time / 3 {
                self.kill_both().await;
                kill = false;
                // Not before: a daemon with a thread that opens a file on a hung disk cannot die (signal(7), state D).
                self.send_requests();
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Kills daemon and monitor at once, starts the daemon, and waits until every bystander answers.
    async fn kill_both(&mut self) {
        self.stop_probes().await;
        let pids = ["pinion", "pinmon"].map(|name| self.node.process(name).pid.to_string());
        self.node.run("kill", &["-KILL", &pids[0], &pids[1]]).ok();
        let begin = Instant::now();
        self.node.forget_daemon();
        self.node.start_daemon();
        for victim in &self.bystanders {
            while let Err(fault) = victim.probe(&mut self.client, Duration::from_secs(5)).await {
                if begin.elapsed() > Duration::from_secs(30) {
                    self.record.fault(format!("after the death of daemon and monitor: {fault}"));
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        println!("{:>16}  both killed; every bystander answered after {:.2} s", "", begin.elapsed().as_secs_f64());
        self.programs = Programs::of(&self.node);
        self.start_probes();
    }

    fn judge(&self, during: &Summary, quiet: &Summary) {
        println!("{:>16}  {quiet}  undisturbed", self.case);
        println!("{:>16}  {during}  {} over 3 × p99", "", during.over(quiet.per_mille(990) * 3));
        if !self.unready.is_empty() {
            println!("{:>16}  Status: {:?}", "", self.unready);
        }
        let bound = quiet.per_mille(990).as_secs_f64() * self.plan.factor;
        if during.per_mille(990).as_secs_f64() > bound || during.max().as_secs_f64() > self.plan.slowest {
            self.record.fault(format!("bystanders' execs: {during}"));
        }
        if during.count() == 0 {
            self.record.fault("no probe of a bystander was answered".into());
        }
    }

    fn end_fault(&mut self) {
        match (self.case.kind, &mut self.disk) {
            (Kind::Full, None) => drop(self.node.run("rm", &["-f", &disk::filler(Path::new("/run/pinion"))])),
            (Kind::Frozen | Kind::Stalled, Some(disk)) => disk.thaw(),
            (Kind::Slow, Some(disk)) => disk.speed_up(),
            (Kind::Full, Some(disk)) => disk.empty(),
            // Ended by a new mount, after the pods were removed.
            _ => {}
        }
        // Without the kill the stop is requested before its pipe is full, so SIGTERM ends it.
        let waited = self.stop_requested_at.map_or(Duration::ZERO, |at| at.elapsed());
        let outlasted = self.plan.kill && self.case.holds_output() && waited >= Duration::from_secs(STOP_GRACE as u64);
        if let Some(victim) = self.loaded.first_mut() {
            victim.may_be_killed = outlasted;
        }
    }

    /// Whatever was requested while the fault lasted is answered.
    async fn answers(&mut self) {
        let mut refused: BTreeSet<String> = BTreeSet::new();
        while let Some(answer) = self.waiting.join_next().await {
            match answer {
                Ok((_, Ok(()))) => {}
                // Its connection died with the daemon.
                Ok((_, Err(error))) if self.plan.kill && error.contains("transport") => {}
                Ok((what, Err(error))) if is_unanswered(&error) => self.record.fault(format!("{what}: {error}")),
                Ok((what, Err(error))) => drop(refused.insert(format!("{what}: {error}"))),
                Err(error) => self.record.fault(error.to_string()),
            }
        }
        refused.iter().take(4).for_each(|error| println!("{:>16}  answered: {error}", ""));
    }

    async fn finish(mut self) -> Vec<String> {
        let mut dropped = 0;
        if self.case.role == Role::Data && self.case.kind == Kind::ReadOnly {
            self.stop_all().await;
            self.exchange_disk().await;
            self.remove_newcomers().await;
        } else if self.case.role == Role::Data && self.case.needs_new_mount() {
            dropped += self.finish_loaded().await;
            dropped += self.finish_bystanders().await;
            self.remove_newcomers().await;
            self.exchange_disk().await;
        } else {
            dropped += self.finish_loaded().await;
            self.remove_newcomers().await;
            if self.disk.is_some() && self.case.role != Role::Data {
                self.exchange_disk().await;
            }
            dropped += self.finish_bystanders().await;
        }
        if dropped > 0 && !self.case.may_drop_output() {
            self.record.fault(format!("{dropped} lines were dropped"));
        }
        print!("{}", self.programs);
        for leaked in leftovers::since(&self.node, &self.before, Duration::from_secs(20)) {
            self.record.fault(format!("left on the node: {leaked}"));
        }
        let faults = self.record.faults_from(0);
        println!("{:>16}  {} faults", self.case, faults.len());
        faults
    }

    /// Ends the pods that use the disk; returns how many lines the logs say were dropped.
    async fn finish_loaded(&mut self) -> u64 {
        let loaded = self.loaded.split_off(0);
        if !(self.case.role == Role::Log && self.case.kind == Kind::ReadOnly) {
            let (lines, dropped) = victim::finish_all(&self.record, &self.client, loaded).await;
            println!("{:>16}  {lines} lines of pods on the disk in order, {dropped} dropped", "");
            return dropped;
        }
        for victim in loaded {
            // Its last lines cannot be there.
            let ended = victim.end(&mut self.client).await.and_then(|_| log_check::check(&victim.log()).map(drop));
            if let Err(fault) = ended {
                self.record.fault(fault);
            }
        }
        0
    }

    /// Stops every pod. None can be removed: a writable layer on a read-only disk stays, and the answer says so.
    async fn stop_all(&mut self) {
        self.stop_probes().await;
        for victim in self.loaded.split_off(0).into_iter().chain(self.bystanders.split_off(0)) {
            match victim.end(&mut self.client).await {
                Err(answer) if answer.contains("Read-only file system") => {}
                other => self.record.fault(format!("victim {} was removed: {other:?}", victim.number)),
            }
        }
    }

    async fn finish_bystanders(&mut self) -> u64 {
        self.stop_probes().await;
        for victim in &self.bystanders {
            if let Err(fault) = victim.check_running(&mut self.client).await {
                self.record.fault(fault);
            }
        }
        victim::finish_all(&self.record, &self.client, self.bystanders.split_off(0)).await.1
    }

    /// Removes every pod but the bystanders, requested again for a while.
    async fn remove_newcomers(&mut self) {
        let begin = Instant::now();
        let keep: BTreeSet<String> = self.bystanders.iter().map(|victim| victim.pod_id.clone()).collect();
        loop {
            let request = cri_proto::v1::ListPodSandboxRequest::default();
            let pods = self.client.runtime.list_pod_sandbox(request).await.map(|answer| answer.into_inner().items);
            let pods = pods.unwrap_or_default();
            let mut last = Ok(());
            for pod in pods.iter().filter(|pod| !keep.contains(&pod.id)) {
                last = last.and(self.client.remove_pod(&pod.id, ANSWER).await);
            }
            match last {
                Ok(()) => return,
                Err(fault) if begin.elapsed() > ANSWER => return self.record.fault(fault),
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }

    /// Nothing may hold the disk after its pods are gone. Then it is mounted again, as new, and a pod runs on it.
    async fn exchange_disk(&mut self) {
        let of_daemon = self.case.role == Role::Data;
        if of_daemon {
            self.node.stop_daemon();
        }
        let Some(disk) = &self.disk else { return };
        if let Err(fault) = disk.unmount() {
            return self.record.fault(format!("the disk is held after its pods were removed: {fault}"));
        }
        if self.case.kind == Kind::Lost {
            disk.lose_writes();
        }
        disk.mount_again();
        if of_daemon {
            self.node.start_daemon();
        }
        let (pod, container) = user_of(&self.node, self.case.role, "after");
        let life = async {
            let victim = Victim::run_container(&mut self.client, pod, container, 2000).await?;
            victim.probe(&mut self.client, Duration::from_secs(20)).await?;
            victim.finish(&mut self.client).await
        };
        if let Err(fault) = life.await {
            self.record.fault(format!("after the disk was mounted again: {fault}"));
        }
    }
}

/// Where the disk of a role is mounted.
fn place(node: &Node, role: Role) -> PathBuf {
    node.dir.path().join(match role {
        Role::Log => "faulty-logs",
        Role::Volume => "faulty-volume",
        Role::Data | Role::State => "data",
    })
}

/// A pod that uses the disk.
fn user_of(node: &Node, role: Role, name: &str) -> (PodPlan, crate::ContainerPlan) {
    let mut pod = victim::pod(node, name, "");
    let mut container = victim::container(Duration::from_millis(5));
    match role {
        Role::Log => {
            pod.logs = place(node, role).join(name);
            container = victim::container(Duration::from_millis(1));
        }
        Role::Volume => {
            container.mounts = vec![(place(node, role), "/volume".into())];
            container.command.push(format!("/volume/{name}"));
        }
        Role::Data => container.command.push("/tmp/lines".into()),
        Role::State => {}
    }
    (pod, container)
}
