use std::fs;

use cgroup::Joiner;
use oci::{Memory, Resources};

use crate::fixture::{Fixture, pause, run_in};

pub(crate) fn join_every_tree() {
    let fixture = Fixture::new("join");
    let group = fixture.group(&Resources::default());
    let process = run_in(&group.joiner().unwrap(), pause);
    let membership = fs::read_to_string(format!("/proc/{}/cgroup", process.pid)).unwrap();
    for line in membership.lines() {
        assert!(line.ends_with(fixture.path.as_str()), "{line} is not {}", fixture.path);
    }
    assert_eq!(group.pids().unwrap(), [process.pid]);
    assert!(!group.is_empty().unwrap());
}

/// Another runtime has put the process into the group in one tree only.
pub(crate) fn complete_in_every_tree() {
    let fixture = Fixture::new("complete");
    let group = fixture.group(&Resources::default());
    let process = run_in(&Joiner::default(), pause);
    assert!(!group.complete(process.pid).unwrap(), "a process of another group is not moved");
    assert!(group.is_empty().unwrap());
    fs::write(fixture.file("pids", "cgroup.procs"), process.pid.to_string()).unwrap();
    for _ in 0..2 {
        assert!(group.complete(process.pid).unwrap());
        let membership = fs::read_to_string(format!("/proc/{}/cgroup", process.pid)).unwrap();
        assert!(membership.lines().all(|line| line.ends_with(fixture.path.as_str())), "{membership}");
    }
}

/// Only the v2 tree is mounted: the child is cloned into its group and joins no other tree.
pub(crate) fn join_v2() {
    let fixture = Fixture::new("join-v2");
    let group = fixture.group(&Resources::default());
    let process = run_in(&group.joiner().unwrap(), pause);
    let membership = fs::read_to_string(format!("/proc/{}/cgroup", process.pid)).unwrap();
    assert!(membership.lines().any(|line| line == format!("0::{}", fixture.path)), "{membership}");
}

pub(crate) fn kill_all() {
    let fixture = Fixture::new("kill");
    let group = fixture.group(&Resources::default());
    let joiner = group.joiner().unwrap();
    let processes: Vec<_> = (0..5).map(|_| run_in(&joiner, pause)).collect();
    assert_eq!(group.pids().unwrap().len(), 5);
    group.kill().unwrap();
    for process in processes {
        assert_eq!(process.wait(), 128 + 9);
    }
    assert!(group.is_empty().unwrap());
    group.remove().unwrap();
    assert!(!fixture.trees.contains(&fixture.path));
}

pub(crate) fn kill_while_frozen() {
    let fixture = Fixture::new("kill-frozen");
    let group = fixture.group(&Resources::default());
    let process = run_in(&group.joiner().unwrap(), pause);
    group.freeze().unwrap();
    group.kill().unwrap();
    assert_eq!(process.wait(), 128 + 9);
}

/// Another program has frozen the group in the v1 freezer, next to a v2 tree.
pub(crate) fn kill_while_frozen_in_v1() {
    let fixture = Fixture::new("kill-frozen-by-others");
    let group = fixture.group(&Resources::default());
    let process = run_in(&group.joiner().unwrap(), pause);
    let file = format!("/sys/fs/cgroup/freezer{}/freezer.state", fixture.path);
    fs::write(&file, "FROZEN").unwrap();
    while fs::read_to_string(&file).unwrap().trim() != "FROZEN" {
        rustix::thread::sched_yield();
    }
    group.kill().unwrap();
    assert_ne!(fs::read_to_string(&file).unwrap().trim(), "FROZEN");
    assert_eq!(process.wait(), 128 + 9);
}

/// Processes that a container has frozen in a child group of the v1 freezer are killed, and die after they are thawed.
pub(crate) fn removal_thaws_descendants() {
    let fixture = Fixture::new("frozen-below");
    let group = fixture.group(&Resources::default());
    let processes: Vec<_> = (0..3).map(|_| run_in(&group.joiner().unwrap(), pause)).collect();
    for (name, process) in ["a", "b", "c"].into_iter().zip(&processes) {
        let below = format!("/sys/fs/cgroup/freezer{}/{name}/deep", fixture.path);
        fs::create_dir_all(&below).unwrap();
        fs::write(format!("{below}/tasks"), process.pid.to_string()).unwrap();
        fs::write(format!("{below}/../freezer.state"), "FROZEN").unwrap();
        while fs::read_to_string(format!("{below}/freezer.state")).unwrap().trim() != "FROZEN" {
            rustix::thread::sched_yield();
        }
    }
    group.kill().unwrap();
    group.remove().unwrap();
    assert!(!fixture.trees.contains(&fixture.path));
    assert!(processes.into_iter().all(|process| process.wait() == 128 + 9));
}

/// Thaws frozen processes without a removal: a container's group is removed only after its processes have exited.
pub(crate) fn killed_descendants_die_after_thaw() {
    let fixture = Fixture::new("thaw-below");
    let group = fixture.group(&Resources::default());
    let processes: Vec<_> = (0..3).map(|_| run_in(&group.joiner().unwrap(), pause)).collect();
    for (name, process) in ["a", "b/c", "b/c/d/e"].into_iter().zip(&processes) {
        let below = format!("/sys/fs/cgroup/freezer{}/{name}", fixture.path);
        fs::create_dir_all(&below).unwrap();
        fs::write(format!("{below}/tasks"), process.pid.to_string()).unwrap();
        fs::write(format!("{below}/freezer.state"), "FROZEN").unwrap();
        while fs::read_to_string(format!("{below}/freezer.state")).unwrap().trim() != "FROZEN" {
            rustix::thread::sched_yield();
        }
    }
    group.kill().unwrap();
    assert!(!group.is_empty().unwrap(), "the frozen processes died without a thaw: the test is void");
    let mut pass = group.thaw_descendants().expect("the v1 freezer is mounted");
    while !pass.step(2).unwrap() {}
    assert!(processes.into_iter().all(|process| process.wait() == 128 + 9));
    group.remove().unwrap();
}

pub(crate) fn freeze_and_thaw() {
    let fixture = Fixture::new("freeze");
    let group = fixture.group(&Resources::default());
    // The process spins, so that its CPU time shows whether it is running.
    let _process = run_in(&group.joiner().unwrap(), || {
        loop {
            std::hint::spin_loop();
        }
    });
    group.freeze().unwrap();
    assert!(group.is_frozen().unwrap());
    let before = group.stats().unwrap().cpu_usage_ns;
    for _ in 0..100 {
        rustix::thread::sched_yield();
    }
    assert_eq!(group.stats().unwrap().cpu_usage_ns, before, "a frozen process is running");
    group.thaw().unwrap();
    assert!(!group.is_frozen().unwrap());
    while group.stats().unwrap().cpu_usage_ns == before {
        rustix::thread::sched_yield();
    }
}

pub(crate) fn signal_reaches_all_processes() {
    let fixture = Fixture::new("signal");
    let group = fixture.group(&Resources::default());
    let joiner = group.joiner().unwrap();
    let processes = [run_in(&joiner, pause), run_in(&joiner, pause)];
    group.signal(15).unwrap();
    for process in processes {
        assert_eq!(process.wait(), 128 + 15);
    }
    let process = run_in(&joiner, pause);
    group.signal(40).unwrap();
    assert_eq!(process.wait(), 128 + 40, "a real-time signal");
    for bad in [0, -1, 65] {
        assert!(group.signal(bad).is_err());
    }
}

pub(crate) fn exec_group() {
    let fixture = Fixture::new("exec");
    let group = fixture.group(&Resources::default());
    let init = run_in(&group.joiner().unwrap(), pause);
    let command = group.exec_group("exec-1").unwrap();
    let process = run_in(&command.joiner().unwrap(), pause);
    assert_eq!(command.pids().unwrap(), [process.pid]);
    let mut both = vec![init.pid, process.pid];
    both.sort_unstable_by_key(|pid| pid.as_raw_pid());
    assert_eq!(group.pids().unwrap(), both);
    assert!(group.exec_group("exec-1").is_err(), "an exec group was created twice");
    assert!(group.exec_group("../x").is_err());
    let again = group.open_exec_group("exec-1").unwrap();
    again.kill().unwrap();
    assert_eq!(process.wait(), 128 + 9);
    command.remove().unwrap();
    assert_eq!(group.pids().unwrap(), [init.pid], "the init of the container was killed, too");
    assert!(group.open_exec_group("exec-1").is_err());
}

pub(crate) fn oom_kill_is_counted() {
    let fixture = Fixture::new("oom");
    let limit = Some(8 << 20);
    let memory = Memory { limit, swap: limit, ..Memory::default() };
    let group = fixture.group(&Resources { memory: Some(memory), ..Resources::default() });
    assert_eq!(group.oom_kills(), 0);
    let process = run_in(&group.joiner().unwrap(), || {
        let memory = vec![1u8; 64 << 20];
        i32::from(std::hint::black_box(memory)[4096])
    });
    assert_eq!(process.wait(), 128 + 9);
    assert_eq!(group.oom_kills(), 1);
}

pub(crate) fn stats_reflect_usage() {
    const SIZE: usize = 24 << 20;
    let fixture = Fixture::new("stats");
    let limit = 256 << 20;
    let memory = Memory { limit: Some(limit), ..Memory::default() };
    let resources =
        Resources { memory: Some(memory), pids: Some(oci::Pids { limit: Some(50) }), ..Resources::default() };
    let group = fixture.group(&resources);
    let before = group.stats().unwrap();
    assert_eq!((before.pids, before.pids_limit, before.memory_limit), (0, Some(50), Some(limit as u64)));
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let process = run_in(&group.joiner().unwrap(), || {
        let memory = std::hint::black_box(vec![1u8; SIZE]);
        let _ = rustix::io::write(&writer, &memory[..1]);
        pause()
    });
    assert_eq!(rustix::io::read(&reader, &mut [0; 1][..]).unwrap(), 1);
    let after = group.stats().unwrap();
    assert!(after.memory_usage >= SIZE as u64, "{after:?}");
    assert!(after.memory_working_set >= SIZE as u64 && after.memory_working_set <= after.memory_usage, "{after:?}");
    assert!(after.cpu_usage_ns > before.cpu_usage_ns, "{after:?}");
    assert_eq!(after.pids, 1);
    drop(process);
    let again = cgroup::Group::open(&fixture.trees, &fixture.path).unwrap();
    assert_eq!(again.stats().unwrap().pids_limit, Some(50), "statistics of a group that was opened again");
    group.remove().unwrap();
    assert!(matches!(again.stats(), Err(cgroup::Error::Missing { .. })), "statistics of a removed group");
}
