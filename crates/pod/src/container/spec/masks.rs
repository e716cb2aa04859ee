//! Paths of /proc and /sys that tell too much, or change the node.

use std::{
    fs,
    path::Path,
    sync::{Mutex, PoisonError},
};

use oci::{DEFAULT_MASKED_PATHS, DEFAULT_READONLY_PATHS};

use crate::Security;

/// Where the kernel has a directory for each processor.
const PROCESSORS: &str = "/sys/devices/system/cpu";
/// Counts throttling, by which a container can observe the load of its neighbours.
const THROTTLE: &str = "thermal_throttle";

/// The request's list, else the default one; with either, the thermal counters of the processors that are there. An empty
/// list (`procMount: Unmasked`) stays empty.
pub(super) fn masked(security: &Security) -> Vec<String> {
    let mut paths = choose(security, &security.masked_paths, &DEFAULT_MASKED_PATHS);
    if !paths.is_empty() {
        paths.extend(throttle_counters_now(Path::new(PROCESSORS)));
        let mut seen = std::collections::HashSet::new();
        paths.retain(|path| seen.insert(path.clone()));
    }
    paths
}

pub(super) fn readonly(security: &Security) -> Vec<String> {
    choose(security, &security.readonly_paths, &DEFAULT_READONLY_PATHS)
}

fn choose(security: &Security, given: &Option<Vec<String>>, default: &[&str]) -> Vec<String> {
    match given {
        _ if security.privileged => Vec::new(),
        None => default.iter().map(|path| (*path).to_owned()).collect(),
        Some(given) => given.clone(),
    }
}

/// [`throttle_counters`], looked for again when processors went or came.
fn throttle_counters_now(processors: &Path) -> Vec<String> {
    /// The list of processors, and what was found with it.
    static LAST: Mutex<Option<(Vec<u8>, Vec<String>)>> = Mutex::new(None);
    let Ok(online) = fs::read(processors.join("online")) else { return throttle_counters(processors) };
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match &*last {
        Some((then, counters)) if *then == online => counters.clone(),
        _ => last.insert((online, throttle_counters(processors))).1.clone(),
    }
}

/// `<processors>/cpu<n>/thermal_throttle`, sorted. Few machines but virtual ones have none.
fn throttle_counters(processors: &Path) -> Vec<String> {
    let is_processor = |name: &str| {
        name.strip_prefix("cpu").is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    let entries = fs::read_dir(processors).into_iter().flatten().flatten();
    let processors = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_processor));
    let counters = processors.map(|entry| entry.path().join(THROTTLE)).filter(|path| path.exists());
    let mut counters: Vec<String> = counters.filter_map(|path| path.to_str().map(str::to_owned)).collect();
    counters.sort();
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_throttle_counters_that_exist_are_masked() {
        let sys = tempfile::tempdir().expect("a directory");
        for directory in ["cpu0/thermal_throttle", "cpu1", "cpu12/thermal_throttle", "cpufreq/thermal_throttle", "cpu"]
        {
            fs::create_dir_all(sys.path().join(directory)).expect("a directory");
        }
        let expected = ["cpu0", "cpu12"].map(|cpu| format!("{}/{cpu}/thermal_throttle", sys.path().display()));
        assert_eq!(throttle_counters(sys.path()), expected);
        assert!(throttle_counters(Path::new("/nonexistent")).is_empty());
    }
}
