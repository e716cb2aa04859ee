//! Measures the lifecycle of a container from its spec to its end, and of an exec in a running one: medians and minima
//! in µs.
//!
//! `start_speed [COUNT] [IDLE_MS]` measures with a spec like those of engines and the default seccomp profile; run it
//! as root. `start_speed memory` finds the lowest memory limit at which `true` runs.

#[path = "../tests/kernel/bundle.rs"]
mod bundle;
#[allow(dead_code)]
#[path = "../tests/kernel/node.rs"]
mod node;

use std::{path::Path, time::Duration, time::Instant};

use container::Plan;
use node::{Node, next, reap};
use rustix::fd::{AsFd, OwnedFd};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    let node = Node::enter();
    let image = node.image();
    if first.as_deref() == Some("memory") {
        lowest_memory(&node, &image);
    } else {
        let count = first.and_then(|count| count.parse().ok()).unwrap_or(200);
        let idle = Duration::from_millis(arguments.next().and_then(|ms| ms.parse().ok()).unwrap_or(0));
        containers(&node, &image, count, idle, None);
        containers(&node, &image, count, idle, Some(container::staging::make().expect("a staging namespace")));
        execs(&node, &image, count, idle);
    }
    node.clean_up();
}

fn spec(args: &[&str], node: &Node) -> (oci::Spec, seccomp::Program) {
    let mut spec = bundle::spec(args);
    let path = node.parent.join(&node.number().to_string()).expect("a path");
    spec.linux.as_mut().expect("linux").cgroups_path = Some(path.as_str().to_owned());
    let names: Vec<String> = oci::DEFAULT_CAPABILITIES.map(str::to_owned).into();
    let program = seccomp::compile(&seccomp::default_profile(&names)).expect("the default profile");
    (spec, program)
}

fn containers(node: &Node, image: &Path, count: usize, idle: Duration, staging: Option<OwnedFd>) {
    let mut laps = Laps::new(&["plan", "create returns", "ready", "executed", "ended", "removed"]);
    for _ in 0..count {
        let (spec, program) = spec(&["/bin/true"], node);
        let mut inputs = node.inputs_of(image);
        inputs.seccomp = Some(program);
        inputs.invocation.staging = staging.as_ref().map(|fd| fd.try_clone().expect("a duplicate"));
        std::thread::sleep(idle);
        laps.start();
        let plan = Plan::new(&spec, inputs).expect("a plan");
        laps.lap();
        let mut setup = container::create(&node.trees, plan).expect("created");
        laps.lap();
        next(&mut setup).expect("ready");
        laps.lap();
        setup.start().expect("started");
        next(&mut setup).expect("executed");
        laps.lap();
        assert_eq!(reap(&setup), 0);
        laps.lap();
        setup.group.remove().expect("removed");
        laps.lap();
    }
    laps.print(if staging.is_some() { "container with staging namespace" } else { "container" });
}

fn execs(node: &Node, image: &Path, count: usize, idle: Duration) {
    let (spec, program) = spec(&["/bin/sleep", "9999"], node);
    let mut inputs = node.inputs_of(image);
    inputs.seccomp = Some(program.clone());
    let (mut target, _) = node.create(spec, inputs).expect("created");
    target.start().expect("started");
    next(&mut target).expect("executed");
    let mut laps = Laps::new(&["group made", "exec returns", "ready", "executed", "ended", "removed"]);
    let process = bundle::process(&["/bin/true"]);
    for number in 0..count {
        std::thread::sleep(idle);
        laps.start();
        let group = target.group.exec_group(&format!("exec-{number}")).expect("a group");
        laps.lap();
        let stdio = container::Stdio::default();
        let mut setup =
            container::exec(group, target.pidfd.as_fd(), &process, stdio, Some((&program).into())).expect("exec");
        laps.lap();
        next(&mut setup).expect("ready");
        laps.lap();
        next(&mut setup).expect("executed");
        laps.lap();
        assert_eq!(reap(&setup), 0);
        laps.lap();
        setup.group.remove().expect("removed");
        laps.lap();
    }
    laps.print("exec");
    node.end(target);
}

fn lowest_memory(node: &Node, image: &Path) {
    for kib in (4..=1024).step_by(4) {
        let runs = (0..10).all(|_| {
            let (mut spec, program) = spec(&["/bin/true"], node);
            let resources = spec.linux.as_mut().expect("linux").resources.get_or_insert_default();
            resources.memory.get_or_insert_default().limit = Some(kib << 10);
            let mut inputs = node.inputs_of(image);
            inputs.seccomp = Some(program);
            let (mut setup, _) = node.create(spec, inputs).expect("created");
            let executed = setup.start().and_then(|()| next(&mut setup)).is_ok();
            let code = reap(&setup);
            setup.group.remove().expect("removed");
            executed && code == 0
        });
        if runs {
            println!("`true` runs ten of ten times with a memory limit of {kib} KiB");
            return;
        }
    }
}

/// Times since the start of each round, by the name of the step.
struct Laps {
    names: Vec<&'static str>,
    times: Vec<Vec<Duration>>,
    start: Instant,
    next: usize,
}

impl Laps {
    fn new(names: &[&'static str]) -> Self {
        Self { names: names.to_vec(), times: vec![Vec::new(); names.len()], start: Instant::now(), next: 0 }
    }

    fn start(&mut self) {
        self.next = 0;
        self.start = Instant::now();
    }

    fn lap(&mut self) {
        self.times[self.next].push(self.start.elapsed());
        self.next += 1;
    }

    fn print(&mut self, title: &str) {
        println!("{title}, µs since its start: median [min]");
        for (name, times) in self.names.iter().zip(&mut self.times) {
            times.sort();
            println!("  {name:15} {:6} [{}]", times[times.len() / 2].as_micros(), times[0].as_micros());
        }
    }
}
