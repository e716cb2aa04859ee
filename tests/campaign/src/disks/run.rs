//! Runs one case on a new node.

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
    client::is_timeout,
    image, leftovers, log_check,
    namespaces::NodeNamespaces,
    programs::Programs,
    random::Random,
    victim::{self, Victim},
};

/// Size of the disks: enough for an image, its layers and a journal.
const DISK_MIB: u32 = 192;
/// Mount options of the tmpfs of the state directory.
const STATE: &str = "size=16m,mode=755";
/// Seconds between SIGTERM and SIGKILL of the pod that is stopped on the faulty disk; the default of the kubelet.
const STOP_GRACE: i64 = 30;
/// Timeout of responses after the disk works again.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);

struct Run<'a> {
    plan: &'a Plan,
    case: Case,
    /// Must be dropped before the node, because it thaws the file system.
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
    /// Requests that were sent while the disk was faulty.
    requests: JoinSet<(&'static str, Result<(), String>)>,
    /// Time at which the stop of the first pod on the disk was requested.
    stop_requested_at: Option<Instant>,
    unready: BTreeSet<String>,
}

/// Runs a case and returns its faults.
pub(super) async fn run(plan: &Plan, case: Case) -> Vec<String> {
    let mut run = Run::prepare(plan, case).await;
    run.start_probes();
    let begin = Instant::now();
    tokio::time::sleep(Duration::from_secs_f64(plan.quiet)).await;
    let undisturbed = run.record.between(begin, Instant::now());
    run.programs = Programs::of(&run.node);

    let begin = Instant::now();
    run.inject();
    if !plan.kill {
        run.send_requests();
    }
    // Requests of these pods would fail if the daemon is killed.
    let other_pods = (run.case.lets_others_start() && !plan.kill).then(|| run.start_other_pods());
    run.watch(Duration::from_secs_f64(plan.seconds)).await;
    run.check_latency(&run.record.between(begin, Instant::now()), &undisturbed);
    if let Some((stop, other_pods)) = other_pods {
        stop.set();
        other_pods.await.ok();
    }
    run.end_fault();
    run.wait_for_responses().await;
    run.finish().await
}

impl<'a> Run<'a> {
    async fn prepare(plan: &'a Plan, case: Case) -> Self {
        let mut node = Node::new(Options::default());
        let namespaces = NodeNamespaces::of(&node);
        let mount_point = mount_point(&node, case.role);
        let mut disk = None;
        if case.role == Role::State {
            node.run("mkdir", &["-p", "/run/pinion"]).ok();
            node.run("mount", &["-t", "tmpfs", "-o", STATE, "tmpfs", "/run/pinion"]).ok();
        } else {
            disk = Some(Disk::create(namespaces, node.dir.path(), &mount_point, DISK_MIB, case.kind == Kind::Stalled));
        }
        node.start_daemon();
        image::load(&node);
        if let (Kind::Lost, Some(disk)) = (case.kind, &mut disk) {
            disk.save();
        }
        let mut client = Client::connect(&node).await.expect("connect to the daemon");
        let first = victim::pod(&node, "first", "");
        let first = Victim::run(&mut client, first, 0, Duration::from_millis(10)).await.expect("run a pod");
        first.finish(&mut client).await.expect("remove a pod");
        let before = leftovers::state(&node);
        let (mut bystanders, mut loaded) = (Vec::new(), Vec::new());
        for number in 0..plan.victims {
            let pod = victim::pod(&node, &format!("bystander{number}"), "");
            let period = Duration::from_millis(100);
            bystanders.push(Victim::run(&mut client, pod, number, period).await.expect("run a bystander"));
        }
        for number in 0..plan.loaded {
            let (pod, container) = disk_pod(&node, case.role, &format!("loaded{number}"));
            let run = Victim::run_container(&mut client, pod, container, 1000 + number);
            let mut victim = run.await.expect("run a pod on the disk");
            victim.may_exit_unobserved = plan.kill && case.role == Role::State;
            // The first one is stopped while the disk is faulty.
            victim.may_lose_last_lines = number == 0 && case.may_drop_output();
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
            requests: JoinSet::new(),
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
                Random::new(self.plan.seed * 1000 + victim.number as u64),
                Duration::from_millis(self.plan.period),
            ));
        }
    }

    async fn stop_probes(&mut self) {
        self.stop.set();
        while self.probes.join_next().await.is_some() {}
    }

    fn start_other_pods(&self) -> (Stop, tokio::task::JoinHandle<usize>) {
        let stop = Stop::default();
        let logs = self.node.logs();
        let plan = move |number| PodPlan {
            name: format!("other{number}"),
            logs: logs.join(format!("other{number}")),
            ..PodPlan::default()
        };
        let pause = Duration::from_millis(self.plan.period);
        let (task_stop, record, client) = (stop.clone(), self.record.clone(), self.client.clone());
        (stop, tokio::spawn(victim::run_pods_until(task_stop, record, client, plan, pause)))
    }

    fn inject(&mut self) {
        let state = Path::new("/run/pinion");
        match (self.case.kind, &mut self.disk) {
            (Kind::Full, None) => disk::fill(NodeNamespaces::of(&self.node), state),
            (_, None) => unreachable!("the only fault of a tmpfs is full"),
            (Kind::Frozen, Some(disk)) => disk.freeze(),
            (Kind::Stalled, Some(disk)) => disk.stall(),
            (Kind::Slow, Some(disk)) => disk.slow_down(),
            (Kind::Full, Some(disk)) => disk.fill(),
            (Kind::ReadOnly, Some(disk)) => disk.abort(),
            // The writes are lost when the disk is mounted again.
            (Kind::Lost, Some(_)) => {}
        }
    }

    /// Sends requests to stop a pod on the disk and to run new ones, without waiting for the responses.
    fn send_requests(&mut self) {
        let timeout = Duration::from_secs_f64(self.plan.seconds) + RESPONSE_TIMEOUT;
        if let Some(victim) = self.loaded.first() {
            self.stop_requested_at = Some(Instant::now());
            let (mut client, id) = (self.client.clone(), victim.id.clone());
            self.requests.spawn(async move { ("StopContainer", client.stop(&id, STOP_GRACE, timeout).await) });
        }
        for number in 0..self.plan.newcomers {
            let mut client = self.client.clone();
            let (pod, container) = disk_pod(&self.node, self.case.role, &format!("newcomer{number}"));
            self.requests.spawn(async move { ("newcomer", client.run(&pod, &container, timeout).await.map(drop)) });
        }
    }

    /// Checks the node while the disk is faulty. Kills both programs in the meantime if the plan requires it.
    async fn watch(&mut self, time: Duration) {
        let begin = Instant::now();
        let mut kill = self.plan.kill;
        while begin.elapsed() < time {
            let limit = Duration::from_secs_f64(self.plan.slowest);
            match self.client.unready(limit).await {
                Ok(conditions) => self.unready.extend(conditions),
                Err(fault) => self.record.fault(fault),
            }
            if let Err(fault) = self.client.list(limit).await {
                self.record.fault(fault);
            }
            if let Err(fault) = self.programs.check() {
                self.record.fault(fault);
                return;
            }
            if kill && begin.elapsed() > time / 3 {
                self.kill_both().await;
                kill = false;
                // Not before the kill: a daemon with a thread that opens a file on a hung disk cannot exit (state D).
                self.send_requests();
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Kills daemon and monitor at the same time, starts the daemon, and waits until every bystander can be probed.
    async fn kill_both(&mut self) {
        self.stop_probes().await;
        let pids = ["pinion", "pinmon"].map(|name| self.node.process(name).pid.to_string());
        self.node.run("kill", &["-KILL", &pids[0], &pids[1]]).ok();
        let begin = Instant::now();
        self.node.reap_daemon();
        self.node.start_daemon();
        for victim in &self.bystanders {
            while let Err(fault) = victim.probe(&mut self.client, Duration::from_secs(5)).await {
                if begin.elapsed() > Duration::from_secs(30) {
                    self.record.fault(format!("after daemon and monitor were killed: {fault}"));
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        println!("{:>16}  both killed; every bystander responded after {:.2} s", "", begin.elapsed().as_secs_f64());
        self.programs = Programs::of(&self.node);
        self.start_probes();
    }

    fn check_latency(&self, during: &Summary, undisturbed: &Summary) {
        println!("{:>16}  {undisturbed}  undisturbed", self.case);
        println!("{:>16}  {during}  {} over 3 × p99", "", during.over(undisturbed.per_mille(990) * 3));
        if !self.unready.is_empty() {
            println!("{:>16}  Status: {:?}", "", self.unready);
        }
        let bound = undisturbed.per_mille(990).as_secs_f64() * self.plan.factor;
        if during.per_mille(990).as_secs_f64() > bound || during.max().as_secs_f64() > self.plan.slowest {
            self.record.fault(format!("execs of bystanders: {during}"));
        }
        if during.count() == 0 {
            self.record.fault("no probe of a bystander completed".into());
        }
    }

    fn end_fault(&mut self) {
        match (self.case.kind, &mut self.disk) {
            (Kind::Full, None) => drop(self.node.run("rm", &["-f", &disk::filler(Path::new("/run/pinion"))])),
            (Kind::Frozen | Kind::Stalled, Some(disk)) => disk.thaw(),
            (Kind::Slow, Some(disk)) => disk.speed_up(),
            (Kind::Full, Some(disk)) => disk.empty(),
            // The fault ends with a new mount, after the pods were removed.
            _ => {}
        }
        // Without a kill of the programs, the stop is requested before the pipe is full, so that SIGTERM suffices.
        let elapsed = self.stop_requested_at.map_or(Duration::ZERO, |time| time.elapsed());
        let may_be_killed =
            self.plan.kill && self.case.blocks_output() && elapsed >= Duration::from_secs(STOP_GRACE as u64);
        if let Some(victim) = self.loaded.first_mut() {
            victim.may_be_killed = may_be_killed;
        }
    }

    /// Waits for the responses to all requests that were sent while the disk was faulty.
    async fn wait_for_responses(&mut self) {
        let mut errors: BTreeSet<String> = BTreeSet::new();
        while let Some(result) = self.requests.join_next().await {
            match result {
                Ok((_, Ok(()))) => {}
                // The connection was closed when the daemon was killed.
                Ok((_, Err(error))) if self.plan.kill && error.contains("transport") => {}
                Ok((request, Err(error))) if is_timeout(&error) => self.record.fault(format!("{request}: {error}")),
                Ok((request, Err(error))) => drop(errors.insert(format!("{request}: {error}"))),
                Err(error) => self.record.fault(error.to_string()),
            }
        }
        errors.iter().take(4).for_each(|error| println!("{:>16}  response: {error}", ""));
    }

    async fn finish(mut self) -> Vec<String> {
        let mut dropped = 0;
        if self.case.role == Role::Data && self.case.kind == Kind::ReadOnly {
            self.stop_all().await;
            self.remount_disk().await;
            self.remove_newcomers().await;
        } else if self.case.role == Role::Data && self.case.needs_new_mount() {
            dropped += self.finish_loaded().await;
            dropped += self.finish_bystanders().await;
            self.remove_newcomers().await;
            self.remount_disk().await;
        } else {
            dropped += self.finish_loaded().await;
            self.remove_newcomers().await;
            if self.disk.is_some() && self.case.role != Role::Data {
                self.remount_disk().await;
            }
            dropped += self.finish_bystanders().await;
        }
        if dropped > 0 && !self.case.may_drop_output() {
            self.record.fault(format!("{dropped} lines were dropped"));
        }
        print!("{}", self.programs);
        for leaked in leftovers::leaked_since(&self.node, &self.before, Duration::from_secs(20)) {
            self.record.fault(format!("leaked on the node: {leaked}"));
        }
        let faults = self.record.faults_from(0);
        println!("{:>16}  {} faults", self.case, faults.len());
        faults
    }

    /// Removes the pods on the disk. Returns the number of lines that were dropped with a notice.
    async fn finish_loaded(&mut self) -> u64 {
        let loaded = self.loaded.split_off(0);
        if !(self.case.role == Role::Log && self.case.kind == Kind::ReadOnly) {
            let (lines, dropped) = victim::finish_all(&self.record, &self.client, loaded).await;
            println!("{:>16}  {lines} lines of pods on the disk in order, {dropped} dropped", "");
            return dropped;
        }
        for victim in loaded {
            // The last lines are missing, because the log could not be written.
            let result = victim.stop_and_remove(&mut self.client).await;
            if let Err(fault) = result.and_then(|_| log_check::check(&victim.log()).map(drop)) {
                self.record.fault(fault);
            }
        }
        0
    }

    /// Stops every pod. None can be removed, because writable layers on a read-only disk cannot; the error must say so.
    async fn stop_all(&mut self) {
        self.stop_probes().await;
        for victim in self.loaded.split_off(0).into_iter().chain(self.bystanders.split_off(0)) {
            match victim.stop_and_remove(&mut self.client).await {
                Err(error) if error.contains("Read-only file system") => {}
                result => self.record.fault(format!("victim {} was removed: {result:?}", victim.number)),
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

    /// Removes every pod but the bystanders. Repeats failed requests for a limited time.
    async fn remove_newcomers(&mut self) {
        let begin = Instant::now();
        let keep: BTreeSet<String> = self.bystanders.iter().map(|victim| victim.pod_id.clone()).collect();
        loop {
            let request = cri_proto::v1::ListPodSandboxRequest::default();
            let pods = self.client.runtime.list_pod_sandbox(request).await.map(|response| response.into_inner().items);
            let pods = pods.unwrap_or_default();
            let mut result = Ok(());
            for pod in pods.iter().filter(|pod| !keep.contains(&pod.id)) {
                result = result.and(self.client.remove_pod(&pod.id, RESPONSE_TIMEOUT).await);
            }
            match result {
                Ok(()) => return,
                Err(fault) if begin.elapsed() > RESPONSE_TIMEOUT => return self.record.fault(fault),
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }

    /// Checks that nothing uses the disk after its pods were removed, mounts it again, and runs a pod on it.
    async fn remount_disk(&mut self) {
        let is_data = self.case.role == Role::Data;
        if is_data {
            self.node.stop_daemon();
        }
        let Some(disk) = &self.disk else { return };
        if let Err(fault) = disk.unmount() {
            return self.record.fault(format!("the disk is in use after its pods were removed: {fault}"));
        }
        if self.case.kind == Kind::Lost {
            disk.lose_writes();
        }
        disk.mount_again();
        if is_data {
            self.node.start_daemon();
        }
        let (pod, container) = disk_pod(&self.node, self.case.role, "after");
        let life_cycle = async {
            let victim = Victim::run_container(&mut self.client, pod, container, 2000).await?;
            victim.probe(&mut self.client, Duration::from_secs(20)).await?;
            victim.finish(&mut self.client).await
        };
        if let Err(fault) = life_cycle.await {
            self.record.fault(format!("after the disk was mounted again: {fault}"));
        }
    }
}

/// Returns the mount point of the disk of a role.
fn mount_point(node: &Node, role: Role) -> PathBuf {
    node.dir.path().join(match role {
        Role::Log => "faulty-logs",
        Role::Volume => "faulty-volume",
        Role::Data | Role::State => "data",
    })
}

/// Returns the configuration of a pod that uses the disk.
fn disk_pod(node: &Node, role: Role, name: &str) -> (PodPlan, crate::ContainerPlan) {
    let mut pod = victim::pod(node, name, "");
    let mut container = victim::container(Duration::from_millis(5));
    match role {
        Role::Log => {
            pod.logs = mount_point(node, role).join(name);
            container = victim::container(Duration::from_millis(1));
        }
        Role::Volume => {
            container.mounts = vec![(mount_point(node, role), "/volume".into())];
            container.command.push(format!("/volume/{name}"));
        }
        Role::Data => container.command.push("/tmp/lines".into()),
        Role::State => {}
    }
    (pod, container)
}
