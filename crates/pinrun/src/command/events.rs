//! `events ID`: use of resources, and OOM events, one JSON object a line, as containerd and Docker read runc's.

use std::{ffi::OsString, io::Write, os::fd::OwnedFd, time::Duration};

use cgroup::Stats;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use crate::{exit_code::ExitCode, 
    arguments::Global,
    failure::Failure,
    flags::{Flags, Order, switch, value},
    state::Folder,
};

pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &[value(&["interval"]), switch(&["stats"])], Order::Mixed)?;
    let id = flags.id()?;
    let interval = interval(flags.text("interval")?.unwrap_or("5s"))?;
    let record = Folder::open(&global.root, id)?.load()?;
    let init = record.running()?;
    let group = record.group()?;
    print("stats", id, Some(stats(&group.stats()?)))?;
    if flags.is_on("stats")? {
        return Ok(ExitCode::SUCCESS);
    }
    let mut kills = group.oom_kills();
    while !ended_within(&init, interval)? {
        let now = group.oom_kills();
        for _ in kills..now {
            print("oom", id, None)?;
        }
        kills = now;
        print("stats", id, Some(stats(&group.stats()?)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// As Go writes durations: `5s`, `500ms`, `1m`.
fn interval(text: &str) -> Result<Duration, Failure> {
    let wrong = || Failure::usage(format!("invalid value {text:?} for flag -interval: as 5s or 500ms, and more than 0"));
    let at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let number: f64 = text[..at].parse().map_err(|_| wrong())?;
    let seconds = match &text[at..] {
        "ms" => number / 1000.0,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).ok().filter(|duration| !duration.is_zero()).ok_or_else(wrong)
}

fn ended_within(init: &OwnedFd, time: Duration) -> Result<bool, Failure> {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    match poll(&mut [PollFd::new(init, PollFlags::IN)], Some(&time)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(Failure::io("wait for the container's end", errno)),
    }
}

fn print(kind: &str, id: &str, data: Option<Value>) -> Result<(), Failure> {
    let mut event = json!({"type": kind, "id": id});
    if let Some(data) = data {
        event["data"] = data;
    }
    std::io::stdout().write_all(format!("{event}\n").as_bytes()).map_err(|error| Failure::io("print", error))
}

/// In the words of runc's `types.Stats`.
fn stats(stats: &Stats) -> Value {
    let limit = |limit: Option<u64>| limit.unwrap_or(0);
    let raw: serde_json::Map<String, Value> = stats.extra.iter().map(|(name, value)| (name.clone(), (*value).into())).collect();
    json!({
        "cpu": {
            "usage": {"total": stats.cpu_usage_ns, "kernel": stats.cpu_system_ns, "user": stats.cpu_user_ns},
            "throttling": {
                "periods": stats.cpu_periods,
                "throttledPeriods": stats.cpu_throttled_periods,
                "throttledTime": stats.cpu_throttled_ns,
            },
        },
        "cpuset": {},
        "memory": {
            "cache": stats.extra.get("file").copied().unwrap_or(0),
            "usage": {"limit": stats.memory_limit.unwrap_or(u64::MAX), "usage": stats.memory_usage, "failcnt": 0},
            "swap": {"limit": stats.swap_limit.unwrap_or(0), "usage": limit(stats.swap_usage), "failcnt": 0},
            "kernel": {"limit": 0, "failcnt": 0},
            "kernelTCP": {"limit": 0, "failcnt": 0},
            "raw": raw,
        },
        "pids": {"current": stats.pids, "limit": limit(stats.pids_limit)},
        "blkio": {
            "ioServiceBytesRecursive": [
                {"op": "Read", "value": stats.io_read_bytes},
                {"op": "Write", "value": stats.io_write_bytes},
            ],
        },
        "hugetlb": {},
        "intel_rdt": {},
        "network_interfaces": [],
    })
}
