use oci::{Cpu, HugepageLimit, Memory, Pids, Resources};

use super::*;

fn with_memory(limit: i64, swap: Option<i64>) -> Resources {
    Resources { memory: Some(Memory { limit: Some(limit), swap, ..Memory::default() }), ..Resources::default() }
}

fn with_cpu(cpu: Cpu) -> Resources {
    Resources { cpu: Some(cpu), ..Resources::default() }
}

#[test]
fn zero_means_not_set_and_minus_one_no_limit() {
    let resources = Resources {
        pids: Some(Pids { limit: Some(-1) }),
        cpu: Some(Cpu {
            shares: Some(0),
            quota: Some(-1),
            period: Some(0),
            cpus: Some(String::new()),
            ..Cpu::default()
        }),
        ..with_memory(0, Some(0))
    };
    let limits = Limits::from_spec(&resources).unwrap();
    assert_eq!(limits.memory, super::Memory::default());
    assert_eq!(limits.cpu, super::Cpu { quota: Some(Bound::Max), ..super::Cpu::default() });
    assert_eq!((limits.pids, limits.cpuset.cpus), (Some(Bound::Max), None));
    assert_eq!(Limits::from_spec(&with_memory(-1, None)).unwrap().memory.swap, Some(Bound::Max));
    assert_eq!(Limits::from_spec(&Resources::default()).unwrap(), Limits::default());
}

#[test]
fn a_limit_of_zero_tasks_is_a_limit() {
    let with =
        |limit| Limits::from_spec(&Resources { pids: Some(Pids { limit }), ..Resources::default() }).unwrap().pids;
    assert_eq!(with(None), None);
    assert_eq!(with(Some(0)), Some(Bound::At(1)));
    assert_eq!(with(Some(-1)), Some(Bound::Max));
    assert_eq!(with(Some(3)), Some(Bound::At(3)));
}

#[test]
fn errors_name_the_field() {
    let huge = |size: &str| {
        let hugepage_limits = vec![HugepageLimit { page_size: size.into(), limit: 1 }];
        Resources { hugepage_limits, ..Resources::default() }
    };
    let memory = |memory| Resources { memory: Some(memory), ..Resources::default() };
    let unified = |key: &str| Resources { unified: [(key.to_owned(), "1".to_owned())].into(), ..Resources::default() };
    let weight = |w| BlockIo { weight: Some(w), ..BlockIo::default() };
    let cases = [
        (with_memory(2, Some(1)), "memory.swap"),
        (with_memory(0, Some(1)), "memory.swap"),
        (with_memory(-1, Some(1)), "memory.swap"),
        (with_memory(-2, None), "memory.limit"),
        (with_memory(1, Some(-2)), "memory.swap"),
        (memory(Memory { reservation: Some(-2), ..Memory::default() }), "memory.reservation"),
        (memory(Memory { kernel_tcp: Some(i64::MIN), ..Memory::default() }), "memory.kernelTCP"),
        (with_cpu(Cpu { shares: Some(262_145), ..Cpu::default() }), "cpu.shares"),
        (with_cpu(Cpu { idle: Some(2), ..Cpu::default() }), "cpu.idle"),
        (with_cpu(Cpu { cpus: Some("0-".into()), ..Cpu::default() }), "cpu.cpus"),
        (with_cpu(Cpu { mems: Some("3-1".into()), ..Cpu::default() }), "cpu.mems"),
        (Resources { block_io: Some(weight(9)), ..Resources::default() }, "blockIO.weight"),
        (huge("2MiB"), "pageSize"),
        (huge("../../x2MB"), "pageSize"),
        (huge("02MB"), "pageSize"),
        (unified("cgroup.procs"), "cgroup.procs"),
        (unified("cgroup.subtree_control"), "cgroup.subtree_control"),
        (unified("memory/../memory.max"), "unified"),
        (unified("memory"), "unified"),
    ];
    for (resources, field) in cases {
        let error = Limits::from_spec(&resources).unwrap_err().to_string();
        assert!(error.starts_with("linux.resources.") && error.contains(field), "{error} should name {field}");
    }
}

#[test]
fn valid_lists_and_page_sizes_are_accepted() {
    for list in ["0", "0-3,7", " 1,2 "] {
        assert!(Limits::from_spec(&with_cpu(Cpu { cpus: Some(list.into()), ..Cpu::default() })).is_ok(), "{list}");
    }
    for size in ["64KB", "2MB", "512MB", "1GB"] {
        check_page_size(size).unwrap();
    }
}
