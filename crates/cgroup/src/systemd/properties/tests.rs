use std::collections::BTreeMap;

use oci::{Cpu, DeviceRule, Memory, Pids, Resources};

use super::*;

fn properties(resources: &Resources, v2: bool) -> BTreeMap<String, Value> {
    from_limits(&Limits::from_spec(resources).unwrap(), v2).into_iter().collect()
}

#[test]
fn limits_become_properties() {
    let resources = Resources {
        memory: Some(Memory {
            limit: Some(64 << 20),
            swap: Some(96 << 20),
            reservation: Some(1 << 20),
            ..Memory::default()
        }),
        cpu: Some(Cpu {
            shares: Some(1024),
            quota: Some(20_500),
            period: Some(50_000),
            cpus: Some("0-1,9".into()),
            ..Cpu::default()
        }),
        pids: Some(Pids { limit: Some(-1) }),
        unified: BTreeMap::from([
            ("memory.high".to_owned(), "1000".to_owned()),
            ("pids.max".to_owned(), "7".to_owned()),
            ("memory.oom.group".to_owned(), "1".to_owned()),
        ]),
        ..Resources::default()
    };
    let list = properties(&resources, true);
    for (name, number) in [
        ("MemoryMax", 64 << 20),
        ("MemorySwapMax", 32 << 20),
        ("MemoryLow", 1 << 20),
        ("MemoryHigh", 1000),
        ("CPUWeight", 100),
        ("CPUQuotaPeriodUSec", 50_000),
        ("CPUQuotaPerSecUSec", 410_000),
        ("TasksMax", 7),
    ] {
        assert_eq!(list.get(name), Some(&Value::U64(number)), "{name}");
    }
    assert_eq!(list["AllowedCPUs"], Value::bytes(&[3, 2]));
    assert_eq!(list.len(), 9, "{list:?}");
    let list = properties(&Resources { unified: BTreeMap::new(), ..resources }, false);
    assert_eq!(list["MemoryLimit"], Value::U64(64 << 20));
    assert_eq!(list["CPUShares"], Value::U64(1024));
    assert_eq!(list["TasksMax"], Value::U64(u64::MAX));
    assert!(!list.contains_key("MemorySwapMax"));
}

#[test]
fn no_limits_give_no_properties() {
    assert!(properties(&Resources::default(), true).is_empty());
}

#[test]
fn quotas_are_converted() {
    let cpu = |quota, period| Resources { cpu: Some(Cpu { quota, period, ..Cpu::default() }), ..Resources::default() };
    assert_eq!(properties(&cpu(Some(150_000), None), true)["CPUQuotaPerSecUSec"], Value::U64(1_500_000));
    assert_eq!(properties(&cpu(Some(-1), Some(100_000)), true)["CPUQuotaPerSecUSec"], Value::U64(u64::MAX));
    assert_eq!(properties(&cpu(Some(1000), Some(1_000_000)), true)["CPUQuotaPerSecUSec"], Value::U64(10_000));
    let text =
        |value: &str| Resources { unified: BTreeMap::from([("cpu.max".into(), value.into())]), ..Resources::default() };
    assert_eq!(properties(&text("50000 200000"), true)["CPUQuotaPerSecUSec"], Value::U64(250_000));
    assert_eq!(properties(&text("max"), true)["CPUQuotaPerSecUSec"], Value::U64(u64::MAX));
}

#[test]
fn device_rules_become_properties() {
    let rule = |allow, kind: Option<&str>, major, minor, access: &str| DeviceRule {
        allow,
        kind: kind.map(str::to_owned),
        major,
        minor,
        access: Some(access.into()),
    };
    let deny_all = rule(false, None, None, None, "rwm");
    let rules = vec![deny_all.clone(), rule(true, Some("b"), Some(8), Some(1), "r")];
    let list = from_limits(&Limits::from_spec(&Resources { devices: rules, ..Resources::default() }).unwrap(), true);
    assert_eq!(list[0], ("DevicePolicy".into(), Value::text("strict")));
    assert_eq!(list[1], ("DeviceAllow".into(), Value::List("(ss)".into(), vec![])));
    let Value::List(_, entries) = &list[2].1 else { panic!("{list:?}") };
    let pair = |name: &str, access: &str| Value::Struct(vec![Value::text(name), Value::text(access)]);
    for entry in [pair("/dev/block/8:1", "r"), pair("char-*", "m"), pair("block-*", "m"), pair("/dev/char/1:3", "rwm")]
    {
        assert!(entries.contains(&entry), "{entry:?} is not among {entries:?}");
    }
    let rules = vec![rule(true, None, None, None, "rwm"), rule(false, Some("b"), Some(8), Some(1), "r")];
    let list = from_limits(&Limits::from_spec(&Resources { devices: rules, ..Resources::default() }).unwrap(), true);
    assert_eq!(list[0], ("DevicePolicy".into(), Value::text("auto")));
    assert_eq!(list.len(), 2);
}
