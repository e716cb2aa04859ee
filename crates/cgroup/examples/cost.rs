//! Measures the cost of group operations on this machine: medians over 200 rounds, in µs. Run as root: `cargo run
//! --release -p cgroup --example cost`.

use std::time::Instant;

use cgroup::{Group, GroupPath, Hierarchies, Limits};
use rustix::process::{WaitId, WaitIdOptions};
use syscall::clone::Clone3;

const ROUNDS: usize = 200;

#[derive(Default)]
struct Samples(Vec<f64>);

impl Samples {
    fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.0.push(start.elapsed().as_secs_f64() * 1e6);
        result
    }

    fn print(&mut self, name: &str) {
        self.0.sort_by(f64::total_cmp);
        println!("{name:<28} {:>8.1} [{:.1}]", self.0[self.0.len() / 2], self.0[0]);
    }
}

fn main() -> Result<(), cgroup::Error> {
    let trees = Hierarchies::open()?;
    println!("{:?}, µs: median [minimum] of {ROUNDS}", trees.layout());
    let base = GroupPath::parse(&format!("/pinion-test-{}/cost", std::process::id()))?;
    let parent = Group::create(&trees, &base, &Limits::default())?;
    let resources = oci::Resources {
        memory: Some(oci::Memory { limit: Some(64 << 20), swap: Some(64 << 20), ..Default::default() }),
        cpu: Some(oci::Cpu { shares: Some(512), quota: Some(50_000), period: Some(100_000), ..Default::default() }),
        pids: Some(oci::Pids { limit: Some(100) }),
        devices: vec![oci::DeviceRule { allow: false, ..Default::default() }],
        ..Default::default()
    };
    let limits = Limits::from_spec(&resources)?;
    let path = base.join("container")?;
    let [
        mut bare,
        mut full,
        mut open,
        mut cloned,
        mut early,
        mut memory,
        mut stats,
        mut first,
        mut kill,
        mut remove,
        mut exec,
    ] = <[Samples; 11]>::default();
    for _ in 0..ROUNDS {
        bare.time(|| Group::create(&trees, &path, &Limits::default()))?.remove()?;
        let group = full.time(|| Group::create(&trees, &path, &limits))?;
        let joiner = open.time(|| group.joiner())?;
        let (reader, writer) = rustix::pipe::pipe().expect("pipe");
        let clone = Clone3 { namespaces: None, cgroup: joiner.v2_dir() };
        let child = cloned.time(|| {
            clone.fork(|| {
                let mut samples = [Samples::default(), Samples::default()];
                let joined =
                    samples[0].time(|| joiner.join_early()).and_then(|()| samples[1].time(|| joiner.join_memory()));
                let bytes: Vec<u8> = samples.iter().flat_map(|samples| samples.0[0].to_ne_bytes()).collect();
                let _ = rustix::io::write(&writer, &bytes);
                i32::from(joined.is_err())
            })
        });
        let child = child.expect("clone3");
        let mut bytes = [0; 16];
        assert_eq!(rustix::io::read(&reader, &mut bytes[..]).expect("read"), 16);
        early.0.push(f64::from_ne_bytes(bytes[..8].try_into().expect("eight")));
        memory.0.push(f64::from_ne_bytes(bytes[8..].try_into().expect("eight")));
        rustix::process::waitid(WaitId::Pid(child.pid), WaitIdOptions::EXITED).expect("waitid");
        exec.time(|| group.exec_group("exec").and_then(Group::remove))?;
        first.time(|| group.stats())?;
        stats.time(|| group.stats())?;
        kill.time(|| group.kill())?;
        remove.time(|| group.remove())?;
    }
    parent.remove()?;
    trees.remove_empty_parents(&base, None);
    bare.print("create, no limits");
    full.print("create with limits, devices");
    open.print("joiner (opens)");
    cloned.print("clone3 into the v2 group");
    early.print("child: join all but memory");
    memory.print("child: join memory");
    exec.print("exec group, make and remove");
    first.print("stats, first");
    stats.print("stats, again");
    kill.print("kill (empty group)");
    remove.print("remove");
    Ok(())
}
