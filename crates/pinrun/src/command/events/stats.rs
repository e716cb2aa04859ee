//! Resource usage of a cgroup in the format of runc's `types.Stats`, which containerd, Docker and cAdvisor parse. v2
//! statistics have v1's names, as with runc.

use cgroup::Group;
use serde_json::{Map, Value, json};

use super::pressure::pressure;

/// The value for v2's `max`. v1's value for "no limit" is passed through unchanged.
const NO_LIMIT: u64 = u64::MAX;

pub(super) fn stats(group: &Group) -> Result<Value, cgroup::Error> {
    Ok(json!({
        "cpu": cpu(group, &group.stats()?),
        "cpuset": cpuset(group),
        "memory": memory(group),
        "pids": without_zeros(json!({
            "current": number(group, "pids", "pids.current"),
            "limit": number(group, "pids", "pids.max").filter(|limit| *limit != NO_LIMIT),
        })),
        "blkio": super::blkio::blkio(group),
        "hugetlb": hugetlb(group),
        "intel_rdt": {},
        "network_interfaces": null,
    }))
}

fn cpu(group: &Group, stats: &cgroup::Stats) -> Value {
    let mut usage = json!({
        "total": stats.cpu_usage_ns,
        "kernel": stats.cpu_system_ns,
        "user": stats.cpu_user_ns,
    });
    if !group.is_v2("cpuacct") {
        let each = group.read("cpuacct", "cpuacct.usage_percpu").unwrap_or_default();
        usage["percpu"] = each.split_whitespace().filter_map(|time| time.parse::<u64>().ok()).collect();
        // cpu user system
        let table = group.read("cpuacct", "cpuacct.usage_all").unwrap_or_default();
        let column = |at: usize| -> Value {
            let rows =
                table.lines().skip(1).map(|row| row.split_whitespace().nth(at).and_then(|time| time.parse().ok()));
            rows.map(|time: Option<u64>| time.unwrap_or(0)).collect()
        };
        usage["percpu_user"] = column(1);
        usage["percpu_kernel"] = column(2);
    }
    let mut cpu = json!({
        "usage": usage,
        "throttling": without_zeros(json!({
            "periods": stats.cpu_periods,
            "throttledPeriods": stats.cpu_throttled_periods,
            "throttledTime": stats.cpu_throttled_ns,
        })),
    });
    if let Some(pressure) = pressure(group, "cpu") {
        cpu["psi"] = pressure;
    }
    cpu
}

fn cpuset(group: &Group) -> Value {
    let v1 = !group.is_v2("cpuset");
    let list = |file: &str| group.read("cpuset", file).filter(|_| v1).and_then(|text| ids(text.trim()));
    let flag = |file: &str| -> i64 {
        let text = group.read("cpuset", &format!("cpuset.{file}")).filter(|_| v1).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    let mut cpuset = json!({
        "cpu_exclusive": flag("cpu_exclusive"),
        "mem_hardwall": flag("mem_hardwall"),
        "mem_exclusive": flag("mem_exclusive"),
        "memory_migrate": flag("memory_migrate"),
        "memory_spread_page": flag("memory_spread_page"),
        "memory_spread_slab": flag("memory_spread_slab"),
        "memory_pressure": flag("memory_pressure"),
        "sched_load_balance": flag("sched_load_balance"),
        "sched_relax_domain_level": flag("sched_relax_domain_level"),
    });
    for (key, file) in [("cpus", "cpuset.cpus"), ("mems", "cpuset.mems")] {
        if let Some(ids) = list(file).filter(|ids| !ids.is_empty()) {
            cpuset[key] = ids.into();
        }
    }
    cpuset
}

/// Parses a list such as `0-2,7`.
fn ids(list: &str) -> Option<Vec<u16>> {
    let mut all = Vec::new();
    for range in list.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        all.extend(first.parse::<u16>().ok()?..=last.parse().ok()?);
    }
    Some(all)
}

fn memory(group: &Group) -> Value {
    let text = group.read("memory", "memory.stat").unwrap_or_default();
    let raw: Map<String, Value> = pairs(&text).map(|(name, value)| (name.to_owned(), value.into())).collect();
    let raw_number = |name: &str| raw.get(name).and_then(Value::as_u64).unwrap_or(0);
    let v2 = group.is_v2("memory");
    let mut memory = without_zeros(json!({"cache": raw_number(if v2 { "file" } else { "cache" })}));
    if v2 {
        let usage = entry(group, ["memory.max", "memory.current", "memory.peak", ""]);
        let mut swap = entry(group, ["memory.swap.max", "memory.swap.current", "memory.swap.peak", ""]);
        // v1's swap values include memory.
        for key in ["usage", "limit"] {
            let (of_swap, of_memory) = (swap[key].as_u64().unwrap_or(0), usage[key].as_u64().unwrap_or(0));
            swap[key] = if of_swap == NO_LIMIT { of_swap } else { of_swap.saturating_add(of_memory) }.into();
        }
        let _ = swap.as_object_mut().and_then(|swap| swap.remove("max"));
        memory["usage"] = usage;
        memory["swap"] = swap;
        for key in ["kernel", "kernelTCP"] {
            memory[key] = json!({"limit": 0, "failcnt": 0});
        }
        if let Some(pressure) = pressure(group, "memory") {
            memory["psi"] = pressure;
        }
    } else {
        for (key, part) in [("usage", ""), ("swap", "memsw."), ("kernel", "kmem."), ("kernelTCP", "kmem.tcp.")] {
            let file = |name: &str| format!("memory.{part}{name}");
            let files = [file("limit_in_bytes"), file("usage_in_bytes"), file("max_usage_in_bytes"), file("failcnt")];
            memory[key] = entry(group, files.each_ref().map(String::as_str));
        }
    }
    memory["raw"] = raw.into();
    memory
}

/// Returns a `MemoryEntry` from the files of limit, usage, peak usage and failures.
fn entry(group: &Group, files: [&str; 4]) -> Value {
    let [limit, usage, max, failures] =
        files.map(|file| if file.is_empty() { None } else { number(group, "memory", file) });
    let mut entry = without_zeros(json!({"usage": usage, "max": max}));
    entry["limit"] = limit.unwrap_or(0).into();
    entry["failcnt"] = failures.unwrap_or(0).into();
    entry
}

/// Returns the usage of each huge page size of the machine.
fn hugetlb(group: &Group) -> Value {
    let mut sizes = Map::new();
    for directory in std::fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten() {
        let name = directory.file_name();
        let kib =
            name.to_str().and_then(|name| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok());
        let Some(kib) = kib else { continue };
        let size = match kib {
            kib if kib >= 1 << 20 => format!("{}GB", kib >> 20),
            kib if kib >= 1 << 10 => format!("{}MB", kib >> 10),
            kib => format!("{kib}KB"),
        };
        let read = |file: &str| number(group, "hugetlb", &format!("hugetlb.{size}.{file}"));
        let (usage, max, failures) = if group.is_v2("hugetlb") {
            let events = group.read("hugetlb", &format!("hugetlb.{size}.events")).unwrap_or_default();
            (read("current"), None, pairs(&events).find(|(name, _)| *name == "max").map(|(_, count)| count))
        } else {
            (read("usage_in_bytes"), read("max_usage_in_bytes"), read("failcnt"))
        };
        if usage.is_some() {
            let mut entry = without_zeros(json!({"usage": usage, "max": max}));
            entry["failcnt"] = failures.unwrap_or(0).into();
            sizes.insert(size, entry);
        }
    }
    sizes.into()
}

/// Reads one number; `max` becomes [`NO_LIMIT`].
fn number(group: &Group, controller: &str, file: &str) -> Option<u64> {
    match group.read(controller, file)?.trim() {
        "max" => Some(NO_LIMIT),
        number => number.parse().ok(),
    }
}

/// Parses lines of `key number`.
fn pairs(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| line.split_once(' ')).filter_map(|(key, value)| Some((key, value.parse().ok()?)))
}

/// Removes zeros and nulls, which runc omits.
fn without_zeros(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null() && *value != json!(0));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_parsed() {
        assert_eq!(ids("0-2,7").unwrap(), [0, 1, 2, 7]);
        assert!(ids("").unwrap().is_empty());
        assert_eq!(ids("x"), None);
    }

    #[test]
    fn zeros_are_omitted_as_by_runc() {
        assert_eq!(without_zeros(json!({"a": 0, "b": 1, "c": null})), json!({"b": 1}));
    }
}
