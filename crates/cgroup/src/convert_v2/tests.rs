use std::{fs, path::PathBuf};

use oci::{BlockIo, Cpu, HugepageLimit, Memory, Pids, Resources, ThrottleDevice, WeightDevice};
use rustix::fs::{Mode, OFlags};

use super::*;
use crate::{Group, GroupPath, Hierarchies, controller::Controllers, tree::Tree};

#[test]
fn shares_are_converted_at_ends_and_default() {
    let pairs = [(0, 1), (2, 1), (1024, 100), (262_144, 10_000), (512, 59), (2048, 174)];
    for (shares, weight) in pairs {
        assert_eq!(weight_of_shares(shares), weight, "{shares}");
    }
    assert!((2..262_144).step_by(97).all(|n| weight_of_shares(n) <= weight_of_shares(n + 97)));
    assert_eq!([10, 500, 1000].map(weight_of_blkio), [1, 4950, 10_000]);
}

/// A regular directory in place of a v2 group, to check which value is written to which file.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str, files: &[&str]) -> (Self, Group) {
        let root = std::env::temp_dir().join(format!("pinion-test-{}-{name}", std::process::id()));
        fs::create_dir_all(root.join("g")).unwrap();
        for file in files {
            fs::write(root.join("g").join(file), "").unwrap();
        }
        let fd = rustix::fs::open(&root, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let controllers = Controllers::from_v2_list("cpuset cpu io memory hugetlb pids rdma misc");
        let trees =
            Hierarchies { trees: [Tree { name: "unified".into(), v2: true, controllers, root: fd }.into()].into() };
        let group = Group::new(&trees, GroupPath::parse("/g").unwrap(), None);
        (Self(root), group)
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.0.join("g").join(file)).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_value_is_written_to_its_file() {
    let expected = [
        ("cpu.weight", "59"),
        ("cpu.max", "50000 200000"),
        ("cpu.max.burst", "1000"),
        ("cpuset.cpus", "0-1"),
        ("cpuset.mems", "0"),
        ("memory.max", "1000000"),
        ("memory.swap.max", "500000"),
        ("memory.low", "200000"),
        ("pids.max", "max"),
        ("io.weight", "8:0 10000"),
        ("io.max", "8:0 rbps=max"),
        ("hugetlb.2MB.max", "2097152"),
        ("memory.high", "900000"),
    ];
    let (directory, group) = Directory::new("values", &expected.map(|(file, _)| file));
    let throttle = |rate| vec![ThrottleDevice { major: 8, minor: 0, rate }];
    let resources = Resources {
        cpu: Some(Cpu {
            shares: Some(512),
            quota: Some(50_000),
            period: Some(200_000),
            burst: Some(1000),
            cpus: Some("0-1".into()),
            mems: Some("0".into()),
            ..Cpu::default()
        }),
        memory: Some(Memory {
            limit: Some(1_000_000),
            swap: Some(1_500_000),
            reservation: Some(200_000),
            swappiness: Some(10),
            ..Memory::default()
        }),
        pids: Some(Pids { limit: Some(-1) }),
        block_io: Some(BlockIo {
            weight: Some(10),
            weight_device: vec![WeightDevice { major: 8, minor: 0, weight: Some(1000), leaf_weight: None }],
            throttle_read_bps_device: throttle(0),
            ..BlockIo::default()
        }),
        hugepage_limits: vec![HugepageLimit { page_size: "2MB".into(), limit: 2 << 20 }],
        unified: [("memory.high".to_owned(), "900000".to_owned())].into(),
        ..Resources::default()
    };
    group.apply(&Limits::from_spec(&resources).unwrap()).unwrap();
    for (file, value) in expected {
        // A regular file keeps the tail of longer values written before.
        assert!(directory.read(file).starts_with(value), "{file}: {:?} is not {value:?}", directory.read(file));
    }
}

#[test]
fn a_missing_file_is_reported_with_field_and_controller() {
    let (_directory, group) = Directory::new("missing", &[]);
    let resources = Resources { pids: Some(Pids { limit: Some(5) }), ..Resources::default() };
    let error = group.apply(&Limits::from_spec(&resources).unwrap()).unwrap_err().to_string();
    assert!(error.contains("pids.limit") && error.contains("pids.max"), "{error}");
}

#[test]
fn unlimited_and_partial_values_are_converted() {
    let one = |resources: Resources, controller| {
        let settings = settings(&Limits::from_spec(&resources).unwrap(), controller);
        settings.into_iter().map(|s| s.choices[0].clone()).collect::<Vec<_>>()
    };
    let memory =
        |limit, swap| Resources { memory: Some(Memory { limit, swap, ..Memory::default() }), ..Resources::default() };
    let pair = |file: &str, value: &str| (file.to_owned(), value.to_owned());
    assert_eq!(
        one(memory(Some(-1), None), Controller::Memory),
        [pair("memory.swap.max", "max"), pair("memory.max", "max")]
    );
    assert_eq!(
        one(memory(Some(7), Some(7)), Controller::Memory),
        [pair("memory.swap.max", "0"), pair("memory.max", "7")]
    );
    let cpu = |cpu| one(Resources { cpu: Some(cpu), ..Resources::default() }, Controller::Cpu);
    assert_eq!(cpu(Cpu { quota: Some(-1), ..Cpu::default() }), [pair("cpu.max", "max")]);
    assert_eq!(cpu(Cpu { period: Some(50_000), ..Cpu::default() }), [pair("cpu.max", "max 50000")]);
    assert_eq!(cpu(Cpu { idle: Some(1), shares: Some(9), ..Cpu::default() }), [pair("cpu.idle", "1")]);
}

#[test]
fn limits_without_v2_equivalent_are_refused() {
    let refused = [
        Resources { cpu: Some(Cpu { realtime_runtime: Some(1), ..Cpu::default() }), ..Resources::default() },
        Resources {
            memory: Some(Memory { disable_oom_killer: Some(true), ..Memory::default() }),
            ..Resources::default()
        },
        Resources { memory: Some(Memory { kernel_tcp: Some(5), ..Memory::default() }), ..Resources::default() },
    ];
    for resources in refused {
        assert!(check(&Limits::from_spec(&resources).unwrap()).is_err(), "{resources:?}");
    }
}
