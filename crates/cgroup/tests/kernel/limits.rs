use cgroup::{Error, Group, Limits};
use oci::{Cpu, Memory, Pids, Resources};

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

/// Limits in a layout in which v1 has the controllers.
pub(crate) fn limits_are_written() {
    let fixture = Fixture::new("limits");
    let group = fixture.group(&resources(32 << 20, 48 << 20));
    for (tree, file, value) in [
        ("memory", "memory.limit_in_bytes", "33554432"),
        ("memory", "memory.memsw.limit_in_bytes", "50331648"),
        ("memory", "memory.soft_limit_in_bytes", "1048576"),
        ("cpu", "cpu.shares", "512"),
        ("cpu", "cpu.cfs_quota_us", "20000"),
        ("cpu", "cpu.cfs_period_us", "50000"),
        ("cpu", "cpu.cfs_burst_us", "10000"),
        ("cpuset", "cpuset.cpus", "0"),
        ("cpuset", "cpuset.mems", "0"),
        ("pids", "pids.max", "77"),
    ] {
        assert_eq!(fixture.read(tree, file), value, "{file}");
    }
    let stats = group.stats().unwrap();
    assert_eq!((stats.memory_limit, stats.swap_limit), (Some(32 << 20), Some(16 << 20)));
}

pub(crate) fn limits_are_raised_and_lowered() {
    let fixture = Fixture::new("update");
    let group = fixture.group(&resources(32 << 20, 32 << 20));
    for (memory, swap) in [(64 << 20, 96 << 20), (16 << 20, 16 << 20), (-1, -1), (24 << 20, 24 << 20)] {
        group.update(&Limits::from_spec(&resources(memory, swap)).unwrap()).unwrap();
        let value_of = |bytes: i64| if bytes < 0 { "9223372036854771712".to_owned() } else { bytes.to_string() };
        assert_eq!(fixture.read("memory", "memory.limit_in_bytes"), value_of(memory));
        assert_eq!(fixture.read("memory", "memory.memsw.limit_in_bytes"), value_of(swap));
    }
    let idle = |idle| Resources {
        cpu: Some(Cpu { idle: Some(idle), shares: Some(300), ..Cpu::default() }),
        ..Resources::default()
    };
    for (value, shares) in [(1, "3"), (0, "300")] {
        group.update(&Limits::from_spec(&idle(value)).unwrap()).unwrap();
        assert_eq!(fixture.read("cpu", "cpu.idle"), value.to_string());
        assert_eq!(fixture.read("cpu", "cpu.shares"), shares);
    }
    assert_eq!(fixture.read("pids", "pids.max"), "77", "an update changed a limit that it does not set");
}

pub(crate) fn refused_limit_leaves_no_group() {
    let fixture = Fixture::new("refused");
    let refused = [Cpu { cpus: Some("60000".into()), ..Cpu::default() }, Cpu { quota: Some(1), ..Cpu::default() }];
    for cpu in refused {
        let limits = Limits::from_spec(&Resources { cpu: Some(cpu), ..Resources::default() }).unwrap();
        let error = Group::create(&fixture.trees, &fixture.path, &limits).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        assert!(error.to_string().contains(fixture.path.as_str()), "{error}");
        assert!(!fixture.trees.contains(&fixture.path));
        assert!(!fixture.trees.contains(&fixture.path.parent().unwrap()), "the created parent was not removed");
    }
    let unified = [("memory.high".to_owned(), "1000000".to_owned())].into();
    let limits = Limits::from_spec(&Resources { unified, ..Resources::default() }).unwrap();
    let error = Group::create(&fixture.trees, &fixture.path, &limits).unwrap_err();
    assert!(matches!(&error, Error::Unavailable { controller: "memory", .. }), "{error}");
    assert!(!fixture.trees.contains(&fixture.path.parent().unwrap()));
    let class = oci::Network { class_id: Some(7), ..oci::Network::default() };
    let limits = Limits::from_spec(&Resources { network: Some(class), ..Resources::default() }).unwrap();
    let created = Group::create(&fixture.trees, &fixture.path, &limits);
    if std::path::Path::new("/sys/fs/cgroup/net_cls").exists() {
        drop(created.unwrap());
        return assert_eq!(
            fixture.read("net_cls", "net_cls.classid"),
            "7",
            "net_cls is available, as on Debian's kernel"
        );
    }
    let error = created.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { controller: "net_cls", .. }), "{error}");
    assert!(!fixture.trees.contains(&fixture.path.parent().unwrap()));
}
