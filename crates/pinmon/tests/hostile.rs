//! Containers that try to stop the monitor, and with it all other containers of the node.

mod node;

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use monitor_api::{Attachments, Exec, FailureKind, KillScope, Request, Role, Target};
use node::{Node, PATIENCE};
use rustix::{fs::CWD, mount::OpenTreeFlags};
use testbed::wait_until;

/// Time limit of an exec in another container on a machine under load. A monitor that waits for an attacker takes
/// forever.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Time limit of requests about the attacker: the deadline of an exec is 20 s, and reaping takes up to 2 s more.
const DEADLINE: Duration = Duration::from_secs(40);

/// Default capabilities of Kubernetes.
const CAPABILITIES: [&str; 14] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

impl Node {
    /// Runs a root container with the default capabilities, without a seccomp program, and with the programs of the
    /// host.
    fn run_with_programs(&mut self, id: &str, args: &[&str]) {
        let root = self.state.path().join("root");
        for (name, target) in [("lib", "usr/lib"), ("lib64", "usr/lib64")] {
            let _ = std::os::unix::fs::symlink(target, root.join(name));
        }
        let mut spec = self.spec(id, args);
        spec.mounts.push(oci::Mount {
            destination: "/usr".into(),
            kind: Some("bind".into()),
            options: vec!["rbind".into(), "ro".into()],
            ..oci::Mount::default()
        });
        let process = spec.process.as_mut().expect("a process");
        process.no_new_privileges = false;
        let names: Vec<String> = CAPABILITIES.map(str::to_owned).into();
        process.capabilities = Some(oci::Capabilities {
            bounding: names.clone(),
            effective: names.clone(),
            permitted: names,
            ..oci::Capabilities::default()
        });
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let usr = rustix::mount::open_tree(CWD, "/usr", flags).expect("open_tree /usr");
        let index = spec.mounts.len() as u32 - 1;
        let output = self.output(id).with(Role::Mount(index), usr);
        self.create_with(id, spec, output).expect("create");
        self.start_container(id).expect("start");
    }

    fn send_exec(&mut self, container: &str, exec: &str) -> u64 {
        self.send_exec_of(container, exec, &["true"])
    }

    fn send_exec_of(&mut self, container: &str, exec: &str, args: &[&str]) -> u64 {
        let process = self.spec(container, args).process.expect("a process");
        let exec = Exec { exec: exec.into(), container: container.into(), process };
        self.send(Request::Exec(Box::new(exec)), &Attachments::new())
    }

    /// Makes this number of execs in another container, and returns the longest duration.
    fn longest_exec(&mut self, container: &str, prefix: &str, count: u32) -> Duration {
        let mut longest = Duration::ZERO;
        for n in 0..count {
            let (begin, id) = (Instant::now(), format!("{prefix}{n}"));
            self.exec(container, &id, &["true"]).expect("exec");
            longest = longest.max(begin.elapsed());
        }
        longest
    }

    /// Returns the cgroup of the container in the v2 tree, as the test sees it.
    fn v2_group(&self, id: &str) -> PathBuf {
        let hybrid = PathBuf::from(format!("/sys/fs/cgroup/unified{}/{id}", self.cgroup));
        if hybrid.exists() { hybrid } else { PathBuf::from(format!("/sys/fs/cgroup{}/{id}", self.cgroup)) }
    }
}

/// The container becomes root of its own user namespace, and freezes every cgroup that the monitor creates below that
/// of the container.
#[test]
fn a_container_that_freezes_its_execs_blocks_no_other_container() {
    let mut node = Node::start();
    node.run("good", &["sleep", "1000"]);
    let script = "mkdir -p /tmp/c && mount -t cgroup2 none /tmp/c && echo ready || exit 1
        while :; do for g in /tmp/c/*/cgroup.freeze; do echo 1 > $g; done; done 2>/dev/null";
    node.run_with_programs("evil", &["/usr/bin/unshare", "-U", "-r", "-m", "-C", "/bin/sh", "-c", script]);
    node.wait_for_entry("evil", "stdout F ready");
    // The attack must win a race against each exec. On a busy machine it loses many.
    let (mut failures, mut rounds) = (Vec::new(), 0);
    while failures.is_empty() {
        assert!(rounds < 30, "no exec was frozen: does the attack work?");
        let probes: Vec<u64> = (0..20).map(|n| node.send_exec("evil", &format!("probe{rounds}-{n}"))).collect();
        let longest = node.longest_exec("good", &format!("bystander{rounds}-"), 10);
        assert!(longest < TIME_LIMIT, "an exec in another container took {longest:?}");
        let begin = Instant::now();
        node.run(&format!("another{rounds}"), &["sleep", "1000"]);
        assert!(begin.elapsed() < TIME_LIMIT, "starting another container took {:?}", begin.elapsed());
        failures = probes.into_iter().filter_map(|seq| node.answer(seq).err()).collect();
        assert!(begin.elapsed() < DEADLINE, "{:?}", begin.elapsed());
        rounds += 1;
    }
    for failure in failures {
        assert!(failure.message.contains("did not reach execve in 20 s"), "{failure}");
    }
    let begin = Instant::now();
    node.kill(Target::Container("evil".into()), 9, KillScope::All).expect("kill");
    assert_eq!(node.wait("evil").signal, Some(9));
    node.delete("evil");
    assert!(begin.elapsed() < DEADLINE, "{:?}", begin.elapsed());
    node.delete("good");
    (0..rounds).for_each(|round| node.delete(&format!("another{round}")));
    node.end();
}

/// A container in a user namespace that is frozen from outside, as by a checkpoint, or by having no CPU time.
#[test]
fn a_frozen_container_in_a_user_namespace_blocks_no_other_container() {
    let mut node = Node::start();
    node.run("good", &["sleep", "1000"]);
    let mut spec = node.spec("frozen", &["sleep", "1000"]);
    let linux = spec.linux.as_mut().expect("linux");
    linux.namespaces.push(oci::Namespace { kind: oci::NamespaceType::User, path: None });
    let map = oci::IdMapping { container_id: 0, host_id: 300_000, size: 65536 };
    (linux.uid_mappings, linux.gid_mappings) = (vec![map], vec![map]);
    let output = node.output("frozen");
    node.create_with("frozen", spec, output).expect("create");
    node.start_container("frozen").expect("start");
    node.exec("frozen", "before", &["true"]).expect("exec");
    assert_eq!(node.wait_exec("before").code, Some(0));
    fs::write(node.v2_group("frozen").join("cgroup.freeze"), "1").expect("freeze");
    let probe = node.send_exec("frozen", "probe");
    let longest = node.longest_exec("good", "bystander", 10);
    assert!(longest < TIME_LIMIT, "an exec in another container took {longest:?}");
    let failure = node.answer(probe).expect_err("it is frozen");
    assert!(failure.message.contains("did not reach execve in 20 s"), "{failure}");
    node.delete("frozen");
    node.delete("good");
    node.end();
}

/// The container mounts the v1 freezer next to the v2 tree, and freezes its first process in a nested cgroup there.
const FREEZE_ITSELF_BELOW: &str = "mkdir -p /tmp/v1 && mount -t cgroup -o freezer none /tmp/v1 || exit 1
    mkdir -p /tmp/v1/a/b/c /tmp/v1/x/y && echo 1 > /tmp/v1/a/b/c/cgroup.procs && echo ready || exit 1
    echo FROZEN > /tmp/v1/a/b/freezer.state; while :; do :; done";

impl Node {
    /// Starts the container, and waits until its first process is frozen.
    fn run_frozen_below(&mut self, id: &str) {
        self.run_with_programs(id, &["/usr/bin/unshare", "-U", "-r", "-m", "-C", "/bin/sh", "-c", FREEZE_ITSELF_BELOW]);
        self.wait_for_entry(id, "stdout F ready");
        let state = PathBuf::from(format!("/sys/fs/cgroup/freezer{}/{id}/a/b/freezer.state", self.cgroup));
        wait_until("its first process is frozen", PATIENCE, || {
            fs::read_to_string(&state).is_ok_and(|state| state.trim() == "FROZEN")
        });
    }
}

#[test]
fn a_container_that_froze_its_first_process_in_a_nested_cgroup_is_killed() {
    if !PathBuf::from("/sys/fs/cgroup/freezer").exists() {
        return;
    }
    let mut node = Node::start();
    node.run("good", &["sleep", "1000"]);
    node.run_frozen_below("stopped");
    node.run_frozen_below("deleted");
    let begin = Instant::now();
    node.kill(Target::Container("stopped".into()), 9, KillScope::All).expect("kill");
    assert_eq!(node.wait("stopped").signal, Some(9));
    node.delete("stopped");
    node.delete("deleted");
    assert!(begin.elapsed() < TIME_LIMIT, "{:?}", begin.elapsed());
    node.delete("good");
    node.end();
}

/// The first process moves an exec into a frozen cgroup of the v1 freezer, and the exec is killed without the
/// container.
#[test]
fn an_exec_that_its_container_froze_in_a_nested_cgroup_is_killed() {
    if !PathBuf::from("/sys/fs/cgroup/freezer").exists() {
        return;
    }
    let mut node = Node::start();
    let script = "mkdir -p /tmp/v1 && mount -t cgroup -o freezer none /tmp/v1 && mkdir /tmp/v1/a || exit 1
        echo FROZEN > /tmp/v1/a/freezer.state; echo ready
        while :; do while read p; do [ $p = 1 ] || echo $p > /tmp/v1/a/cgroup.procs; done < /tmp/v1/cgroup.procs; done";
    node.run_with_programs("evil", &["/usr/bin/unshare", "-U", "-r", "-m", "-C", "/bin/sh", "-c", script]);
    node.wait_for_entry("evil", "stdout F ready");
    // It runs until it is killed, so it cannot exit before it is moved.
    let probe = node.send_exec_of("evil", "probe", &["sleep", "1000"]);
    let procs = PathBuf::from(format!("/sys/fs/cgroup/freezer{}/evil/a/cgroup.procs", node.cgroup));
    wait_until("the exec is frozen", PATIENCE, || fs::read_to_string(&procs).is_ok_and(|pids| !pids.is_empty()));
    let _ = node.kill(Target::Exec("probe".into()), 9, KillScope::All);
    wait_until("the exec exited", PATIENCE, || fs::read_to_string(&procs).is_ok_and(|pids| pids.is_empty()));
    let _ = node.answer(probe);
    node.delete("evil");
    node.end();
}

/// Creates the maximum number of nested cgroups.
#[test]
fn a_container_with_many_cgroups_is_removed_without_delaying_others() {
    let mut node = Node::start();
    node.run("good", &["sleep", "1000"]);
    node.run("many", &["sleep", "1000"]);
    let v2 = node.v2_group("many");
    for chain in 0..60 {
        let mut at = v2.join(format!("chain{chain}"));
        for _ in 0..25 {
            fs::create_dir(&at).expect("mkdir");
            at.push("x");
        }
    }
    let v1 = PathBuf::from(format!("/sys/fs/cgroup/memory{}/many", node.cgroup));
    if v1.exists() {
        let mut at = v1;
        for _ in 0..700 {
            at.push("x");
            fs::create_dir(&at).expect("mkdir");
        }
    }
    let delete = node.send(Request::Delete { container: "many".into() }, &Attachments::new());
    let mut longest = Duration::ZERO;
    let begin = Instant::now();
    let mut commands = Vec::new();
    for n in 0..20 {
        commands.push((Instant::now(), node.send_exec("good", &format!("bystander{n}"))));
    }
    // The answers may come in any order.
    for (sent, seq) in commands {
        node.answer(seq).expect("exec");
        longest = longest.max(sent.elapsed());
    }
    assert!(longest < TIME_LIMIT, "an exec in another container took {longest:?}");
    node.answer(delete).expect("delete");
    eprintln!("execs in another container {longest:?}, removal of 2200 cgroups {:?}", begin.elapsed());
    node.delete("good");
    node.end();
}

#[test]
fn nested_cgroups_are_limited() {
    let mut node = Node::start();
    node.run("c", &["sleep", "1000"]);
    let read = |file: &str| fs::read_to_string(node.v2_group("c").join(file)).expect("read").trim().to_owned();
    assert_eq!((read("cgroup.max.depth"), read("cgroup.max.descendants")), ("32".to_owned(), "2048".to_owned()));
    node.delete("c");
    node.end();
}

/// Execs with leftover processes: the monitor keeps no descriptor for them, and a limited number of records.
#[test]
fn leftovers_of_execs_are_limited() {
    const LEFTOVERS_MAX: usize = 256;
    let mut node = Node::start();
    node.run("c", &["sleep", "1000"]);
    node.exec("c", "first", &["true"]).expect("exec");
    node.wait_exec("first");
    let before = node.descriptors();
    for n in 0..LEFTOVERS_MAX {
        let id = format!("e{n}");
        node.exec("c", &id, &["sh", "-c", "sleep 1000 & exit 0"]).expect("exec");
        assert_eq!(node.wait_exec(&id).code, Some(0));
    }
    let now = node.descriptors();
    assert!(now <= before + 2, "{before} descriptors before, {now} now");
    let failure = node.exec("c", "more", &["true"]).expect_err("too many");
    assert_eq!(failure.kind, FailureKind::State, "{failure}");
    assert!(failure.message.contains("256 completed execs"), "{failure}");
    node.kill(Target::Exec("e0".into()), 9, KillScope::All).expect("a leftover");
    wait_until("its cgroup is removed", PATIENCE, || !node.has_group("e0"));
    let mut tries = 0;
    while node.exec("c", &format!("again{tries}"), &["true"]).is_err() {
        tries += 1;
        assert!(tries < 1000, "its record was not removed");
        std::thread::sleep(Duration::from_millis(20));
    }
    node.wait_exec(&format!("again{tries}"));
    node.delete("c");
    node.end();
}
