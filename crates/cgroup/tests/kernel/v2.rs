//! The v2 tree with all controllers, without v1 trees.

use cgroup::{Error, Group, Limits};
use oci::{BlockIo, Cpu, HugepageLimit, Memory, Pids, Rdma, Resources, ThrottleDevice};

use crate::fixture::Fixture;

fn resources(memory: i64, swap: i64) -> Resources {
    Resources {
        memory: Some(Memory { limit: Some(memory), swap: Some(swap), reservation: Some(1 << 20), ..Memory::default() }),
        cpu: Some(Cpu {
            shares: Some(512),
            quota: Some(20_000),
            period: Some(50_000),
            burst: Some(10_000),
            cpus: Some("0".into()),
            mems: Some("0".into()),
            ..Cpu::default()
        }),
        pids: Some(Pids { limit: Some(77) }),
        ..Resources::default()
    }
}

/// Every field that v2 supports is written to its file.
pub(crate) fn limits_are_written() {
    let fixture = Fixture::new("limits");
    let throttle = |rate| vec![ThrottleDevice { major: 259, minor: 0, rate }];
    let unified = [("memory.high", "16777216"), ("memory.oom.group", "1"), ("cpu.weight.nice", "3")];
    let group = fixture.group(&Resources {
        block_io: Some(BlockIo {
            weight: Some(500),
            throttle_read_bps_device: throttle(1_048_576),
            throttle_write_iops_device: throttle(100),
            ..BlockIo::default()
        }),
        hugepage_limits: vec![HugepageLimit { page_size: "2MB".into(), limit: 4 << 20 }],
        unified: unified.map(|(file, value)| (file.to_owned(), value.to_owned())).into(),
        ..resources(32 << 20, 48 << 20)
    });
    for (file, value) in [
        ("memory.max", "33554432"),
        ("memory.swap.max", "16777216"),
        ("memory.low", "1048576"),
        ("memory.high", "16777216"),
        ("memory.oom.group", "1"),
        ("cpu.weight.nice", "3"),
        ("cpu.max", "20000 50000"),
        ("cpu.max.burst", "10000"),
        ("cpuset.cpus", "0"),
        ("cpuset.mems", "0"),
        ("pids.max", "77"),
        ("hugetlb.2MB.max", "4194304"),
        ("hugetlb.2MB.rsvd.max", "4194304"),
        ("io.max", "259:0 rbps=1048576 wbps=max riops=max wiops=100"),
    ] {
        assert_eq!(fixture.read("", file), value, "{file}");
    }
    let weights: Vec<_> = ["io.bfq.weight", "io.weight"].map(|file| fixture.file("", file)).into();
    let weight =
        weights.iter().find_map(|path| std::fs::read_to_string(path).ok()).expect("the io controller has weights");
    assert!(["default 500\n", "default 4950\n", "500\n"].contains(&weight.as_str()), "{weight:?}");
    let stats = group.stats().unwrap();
    assert_eq!((stats.memory_limit, stats.swap_limit), (Some(32 << 20), Some(16 << 20)));
    assert_eq!(stats.pids_limit, Some(77));
}

pub(crate) fn limits_are_raised_and_lowered() {
    let fixture = Fixture::new("update");
    let group = fixture.group(&resources(32 << 20, 32 << 20));
    for (memory, swap) in [(64 << 20, 96 << 20), (16 << 20, 16 << 20), (-1, -1), (24 << 20, 24 << 20)] {
        group.update(&Limits::from_spec(&resources(memory, swap)).unwrap()).unwrap();
        let value_of = |bytes: i64| if bytes < 0 { "max".to_owned() } else { bytes.to_string() };
        assert_eq!(fixture.read("", "memory.max"), value_of(memory));
        assert_eq!(fixture.read("", "memory.swap.max"), value_of(if swap < 0 { swap } else { swap - memory }));
    }
    let idle = |idle| Resources {
        cpu: Some(Cpu { idle: Some(idle), shares: Some(1024), ..Cpu::default() }),
        ..Resources::default()
    };
    for (value, weight) in [(1, "0"), (0, "100")] {
        group.update(&Limits::from_spec(&idle(value)).unwrap()).unwrap();
        assert_eq!(fixture.read("", "cpu.idle"), value.to_string());
        assert_eq!(fixture.read("", "cpu.weight"), weight);
    }
    assert_eq!(fixture.read("", "pids.max"), "77", "an update changed a limit that it does not set");
}

/// `memory.checkBeforeUpdate`: the update is refused, and no process is killed.
pub(crate) fn update_is_checked() {
    let fixture = Fixture::new("checked");
    let group = fixture.group(&Resources::default());
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let process = crate::fixture::run_in(&group.joiner().unwrap(), || {
        let memory = std::hint::black_box(vec![1u8; 24 << 20]);
        let _ = rustix::io::write(&writer, &memory[..1]);
        crate::fixture::pause()
    });
    rustix::io::read(&reader, &mut [0; 1][..]).unwrap();
    let limit = |check| Memory { limit: Some(1 << 20), check_before_update: Some(check), ..Memory::default() };
    let limits = |check| Limits::from_spec(&Resources { memory: Some(limit(check)), ..Resources::default() }).unwrap();
    let error = group.update(&limits(true)).unwrap_err();
    assert!(error.to_string().contains("memory.limit"), "{error}");
    assert_eq!(fixture.read("", "memory.max"), "max");
    group.update(&limits(false)).unwrap();
    assert_eq!(process.wait(), 128 + 9, "the process was not killed without the check");
    assert_eq!(group.oom_kills(), 1);
}

pub(crate) fn refused_limit_leaves_no_group() {
    let fixture = Fixture::new("refused");
    let assert_removed = || {
        let parent = fixture.path.parent().unwrap();
        assert!(!fixture.trees.contains(&parent), "the created parent was not removed");
    };
    let class = oci::Network { class_id: Some(7), ..oci::Network::default() };
    let old = Cpu { realtime_runtime: Some(1000), ..Cpu::default() };
    let pages = HugepageLimit { page_size: "3MB".into(), limit: 1 };
    let adapter = ("none0".to_owned(), Rdma { hca_handles: Some(1), hca_objects: None });
    let none = Resources::default;
    let cases = [
        (Resources { network: Some(class), ..none() }, "net_cls"),
        (Resources { cpu: Some(old), ..none() }, "cpu.realtimeRuntime"),
        (Resources { hugepage_limits: vec![pages], ..none() }, "hugetlb.3MB.max"),
        (Resources { rdma: [adapter].into(), ..none() }, "rdma.max"),
        (Resources { unified: [("memory.none".to_owned(), "1".to_owned())].into(), ..none() }, "memory.none"),
        (Resources { unified: [("pids.max".to_owned(), "many".to_owned())].into(), ..none() }, "pids.max"),
        (Resources { cpu: Some(Cpu { quota: Some(1), ..Cpu::default() }), ..none() }, "cpu.max"),
    ];
    for (resources, word) in cases {
        let limits = Limits::from_spec(&resources).unwrap();
        let error = Group::create(&fixture.trees, &fixture.path, &limits).unwrap_err();
        assert!(error.to_string().contains(word), "{word}: {error}");
        assert_removed();
    }
}

/// The error names a process that prevents enabling controllers: on v2, a group whose children have limits cannot
/// contain processes.
pub(crate) fn process_in_parent_is_named() {
    let fixture = Fixture::new("busy");
    let group = fixture.group(&Resources::default());
    let process = crate::fixture::run_in(&group.joiner().unwrap(), crate::fixture::pause);
    let limits = Limits::from_spec(&Resources { pids: Some(Pids { limit: Some(5) }), ..Resources::default() }).unwrap();
    let error = Group::create(&fixture.trees, &fixture.path.join("below").unwrap(), &limits).unwrap_err();
    assert!(matches!(&error, Error::Unavailable { controller: "pids", .. }), "{error}");
    assert!(error.to_string().contains(&process.pid.to_string()), "{error}");
}

pub(crate) fn unused_group_is_created_again() {
    let fixture = Fixture::new("again");
    drop(fixture.group(&Resources { pids: Some(Pids { limit: Some(5) }), ..Resources::default() }));
    assert_eq!(fixture.read("", "pids.max"), "5");
    drop(fixture.group(&Resources::default()));
    assert_eq!(fixture.read("", "pids.max"), "max", "the limit of the previous group is still in effect");
}

/// While a group holds the controllers, they cannot be disabled above it; and the limits of its siblings are kept.
pub(crate) fn held_controllers_stay_enabled() {
    let fixture = Fixture::new("pod");
    let (holder, sibling) = (fixture.path.join("holder").unwrap(), fixture.path.join("sibling").unwrap());
    fixture.trees.hold_controllers(&holder).unwrap();
    fixture.trees.hold_controllers(&holder).unwrap();
    let limits = Limits::from_spec(&resources(32 << 20, 32 << 20)).unwrap();
    let group = Group::create(&fixture.trees, &sibling, &limits).unwrap();
    let control = fixture.file("", "cgroup.subtree_control");
    let limit = || std::fs::read_to_string(fixture.file("", "sibling/memory.max")).ok();
    let refused = std::fs::write(&control, "-memory").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::BUSY.raw_os_error()), "{refused}");
    assert_eq!(limit().as_deref(), Some("33554432\n"));
    Group::open(&fixture.trees, &holder).unwrap().remove().unwrap();
    std::fs::write(&control, "-memory").unwrap();
    assert_eq!(limit(), None, "the kernel does not refuse it anymore");
    group.remove().unwrap();
}

/// Another program disables a controller once, at any moment of the creation.
pub(crate) fn limits_are_written_although_controllers_are_disabled() {
    let fixture = Fixture::new("disabled/group");
    let limits = Limits::from_spec(&resources(32 << 20, 32 << 20)).unwrap();
    let control = format!("/sys/fs/cgroup{}/cgroup.subtree_control", fixture.path.parent().unwrap());
    for delay in (0..200).map(|step| std::time::Duration::from_micros(step * 25)) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(delay);
                // Fails if the parent does not exist yet.
                ["-cpu", "-memory"].map(|word| std::fs::write(&control, word))
            });
            let created = Group::create(&fixture.trees, &fixture.path, &limits);
            created.unwrap_or_else(|error| panic!("after {delay:?}: {error}")).remove().unwrap();
        });
    }
}
