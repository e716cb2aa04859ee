//! `update ID`: changes the limits of a container.

use std::{ffi::OsString, path::Path};

use serde_json::Value;

use crate::{
    arguments::Global,
    bundle,
    command::state::status_name,
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flag, Flags, Order, value},
    state::{Directory, Record},
};

const FLAGS: [Flag; 19] = [
    value(&["resources", "r"]),
    value(&["blkio-weight"]),
    value(&["cpu-period"]),
    value(&["cpu-quota"]),
    value(&["cpu-burst"]),
    value(&["cpu-share"]),
    value(&["cpu-rt-period"]),
    value(&["cpu-rt-runtime"]),
    value(&["cpuset-cpus"]),
    value(&["cpuset-mems"]),
    value(&["cpu-idle"]),
    value(&["memory"]),
    value(&["memory-reservation"]),
    value(&["memory-swap"]),
    value(&["pids-limit"]),
    value(&["l3-cache-schema"]),
    value(&["mem-bw-schema"]),
    // Ignored, as by runc: current kernels do not have these limits.
    value(&["kernel-memory"]),
    value(&["kernel-memory-tcp"]),
];

pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &FLAGS, Order::Mixed)?;
    let id = flags.id()?;
    let directory = Directory::open(&global.root, id)?;
    let record = directory.load()?;
    let status = record.status(&directory)?;
    if status == oci::Status::Stopped {
        return Err(Failure::new(format!("container {id} is not running: {}", status_name(status))));
    }
    let mut change: oci::Resources = match flags.text("resources")? {
        Some("-") => bundle::from_file(std::os::fd::AsFd::as_fd(&std::io::stdin()), "resources from standard input")?,
        Some(file) => bundle::read_json(Path::new(file), &format!("resources {file:?}"))?,
        None => from_flags(&flags)?,
    };
    if flags.value("l3-cache-schema").or(flags.value("mem-bw-schema")).is_some() {
        return Err(Failure::new(
            "update Intel RDT: the container has no resctrl group; set linux.intelRdt when creating the container",
        ));
    }
    if let Some(memory) = &mut change.memory {
        complete(memory, record.resources.as_ref().and_then(|before| before.memory.as_ref()));
    }
    apply(&record, &change)?;
    directory.save(&Record { resources: Some(merged(record.resources.as_ref(), &change)?), ..record })?;
    Ok(ExitCode::SUCCESS)
}

/// Completes a change of only one of `memory.limit` and `memory.swap` with the current value of the other:
/// `memory.swap` limits memory plus swap, so both are checked and applied together. Removing the memory limit removes
/// both.
fn complete(memory: &mut oci::Memory, before: Option<&oci::Memory>) {
    let is_set = |value: &Option<i64>| value.is_some_and(|bytes| bytes != 0);
    let before = before.cloned().unwrap_or_default();
    match (is_set(&memory.limit), is_set(&memory.swap)) {
        (true, false) if memory.limit == Some(-1) => memory.swap = Some(-1),
        (true, false) => memory.swap = before.swap,
        (false, true) => memory.limit = before.limit,
        _ => {}
    }
}

/// Applies a change. If the kernel refuses a part of it, the previous limits are restored.
fn apply(record: &Record, change: &oci::Resources) -> Result<(), Failure> {
    let group = record.group()?;
    let limits = cgroup::Limits::from_spec(change)?;
    let Err(error) = group.update(&limits) else { return Ok(()) };
    let before = cgroup::Limits::from_spec(&record.resources.clone().unwrap_or_default());
    let rollback = match before.and_then(|before| group.update(&before)) {
        Ok(()) => "the previous limits were restored",
        Err(_) => "restoring the previous limits failed, some of the new limits may be set",
    };
    Err(Failure::new(format!("{error}; {rollback}")))
}

fn from_flags(flags: &Flags) -> Result<oci::Resources, Failure> {
    let cpu = oci::Cpu {
        shares: flags.parsed("cpu-share")?,
        quota: flags.parsed("cpu-quota")?,
        burst: flags.parsed("cpu-burst")?,
        period: flags.parsed("cpu-period")?,
        realtime_runtime: flags.parsed("cpu-rt-runtime")?,
        realtime_period: flags.parsed("cpu-rt-period")?,
        cpus: flags.text("cpuset-cpus")?.filter(|list| !list.is_empty()).map(str::to_owned),
        mems: flags.text("cpuset-mems")?.filter(|list| !list.is_empty()).map(str::to_owned),
        idle: flags.parsed("cpu-idle")?,
    };
    let memory = oci::Memory {
        limit: bytes(flags, "memory")?,
        reservation: bytes(flags, "memory-reservation")?,
        swap: bytes(flags, "memory-swap")?,
        ..oci::Memory::default()
    };
    let weight: Option<u16> = flags.parsed("blkio-weight")?.filter(|weight| *weight != 0);
    let pids: Option<i64> = flags.parsed("pids-limit")?;
    Ok(oci::Resources {
        cpu: (cpu != oci::Cpu::default()).then_some(cpu),
        memory: (memory != oci::Memory::default()).then_some(memory),
        block_io: weight.map(|weight| oci::BlockIo { weight: Some(weight), ..oci::BlockIo::default() }),
        pids: pids.map(|limit| oci::Pids { limit: Some(limit) }),
        ..oci::Resources::default()
    })
}

/// Parses a number of bytes, or a number with a unit such as `64m` or `1.5GiB`. -1 means no limit.
fn bytes(flags: &Flags, name: &str) -> Result<Option<i64>, Failure> {
    let Some(text) = flags.text(name)?.filter(|text| !text.is_empty()) else { return Ok(None) };
    let wrong = || {
        let expected = "must be a number of bytes, or a number with the unit k, m, g, t or p";
        Failure::usage(format!("invalid value {text:?} for flag -{name}: {expected}"))
    };
    if let Ok(number) = text.parse::<i64>() {
        return if number >= -1 { Ok(Some(number)) } else { Err(wrong()) };
    }
    let lower = text.to_ascii_lowercase();
    let number = lower.trim_end_matches("ib").trim_end_matches('b');
    let (number, shift) = match number.char_indices().next_back() {
        Some((at, 'k')) => (&number[..at], 10),
        Some((at, 'm')) => (&number[..at], 20),
        Some((at, 'g')) => (&number[..at], 30),
        Some((at, 't')) => (&number[..at], 40),
        Some((at, 'p')) => (&number[..at], 50),
        _ => (number, 0),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let bytes = number * (1u64 << shift) as f64;
    if (0.0..9e18).contains(&bytes) { Ok(Some(bytes as i64)) } else { Err(wrong()) }
}

/// Returns the previous resources with every field that the change sets.
fn merged(before: Option<&oci::Resources>, change: &oci::Resources) -> Result<oci::Resources, Failure> {
    let failed = |error: serde_json::Error| Failure::new(format!("record the new limits: {error}"));
    let mut all = serde_json::to_value(before.cloned().unwrap_or_default()).map_err(failed)?;
    overlay(&mut all, serde_json::to_value(change).map_err(failed)?);
    serde_json::from_value(all).map_err(failed)
}

fn overlay(below: &mut Value, above: Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (name, value) in above {
                overlay(below.entry(name).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(words: &[&str]) -> Flags {
        Flags::parse(words.iter().map(OsString::from), &FLAGS, Order::Mixed).unwrap()
    }

    #[test]
    fn sizes_have_units() {
        for (text, size) in [("64m", 64 << 20), ("1.5GiB", 3 << 29), ("10kb", 10 << 10), ("-1", -1), ("4096", 4096)] {
            assert_eq!(bytes(&flags(&["--memory", text]), "memory").unwrap(), Some(size), "{text}");
        }
        for text in ["x", "-2", "m", "1e40"] {
            assert!(bytes(&flags(&["--memory", text]), "memory").unwrap_err().message.contains(text), "{text}");
        }
    }

    #[test]
    fn only_given_limits_change() {
        let change = from_flags(&flags(&["--cpu-quota", "5000", "--pids-limit=7"])).unwrap();
        let before = oci::Resources {
            cpu: Some(oci::Cpu { shares: Some(2), quota: Some(1), ..Default::default() }),
            memory: Some(oci::Memory { limit: Some(3), ..Default::default() }),
            ..Default::default()
        };
        let after = merged(Some(&before), &change).unwrap();
        assert_eq!(after.cpu.unwrap(), oci::Cpu { shares: Some(2), quota: Some(5000), ..Default::default() });
        assert_eq!((after.memory.unwrap().limit, after.pids.unwrap().limit), (Some(3), Some(7)));
        let none = from_flags(&flags(&["--pids-limit", "0"])).unwrap();
        assert_eq!(none.pids, Some(oci::Pids { limit: Some(0) }));
    }

    #[test]
    fn memory_and_swap_are_changed_together() {
        let memory = |limit, swap| oci::Memory { limit, swap, ..Default::default() };
        let after = |before: Option<oci::Memory>, mut change: oci::Memory| {
            complete(&mut change, before.as_ref());
            (change.limit, change.swap)
        };
        let before = Some(memory(Some(64), Some(96)));
        assert_eq!(after(before.clone(), memory(None, Some(128))), (Some(64), Some(128)));
        assert_eq!(after(before.clone(), memory(Some(80), None)), (Some(80), Some(96)));
        assert_eq!(after(before.clone(), memory(Some(-1), None)), (Some(-1), Some(-1)));
        assert_eq!(after(before.clone(), memory(Some(70), Some(70))), (Some(70), Some(70)));
        assert_eq!(after(before, memory(None, None)), (None, None));
        assert_eq!(after(None, memory(None, Some(128))), (None, Some(128)));
    }
}
