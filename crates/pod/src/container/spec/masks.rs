//! Masked and read-only paths of /proc and /sys, which reveal too much about the node or change it.

use std::{
    fs,
    path::Path,
    sync::{Mutex, PoisonError},
};

use oci::{DEFAULT_MASKED_PATHS, DEFAULT_READONLY_PATHS};

use crate::Security;

/// Directory with a subdirectory for each processor.
const PROCESSORS: &str = "/sys/devices/system/cpu";
/// Name of the directory of counters of thermal throttling, by which a container could observe the load of its
/// neighbours.
const THROTTLE: &str = "thermal_throttle";

/// Returns the request's list or the default one, extended by the thermal counters of all processors. An empty list
/// (`procMount: Unmasked`) stays empty.
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

fn choose(security: &Security, requested: &Option<Vec<String>>, default: &[&str]) -> Vec<String> {
    match requested {
        _ if security.privileged => Vec::new(),
        None => default.iter().map(|path| (*path).to_owned()).collect(),
        Some(requested) => requested.clone(),
    }
}

/// Like [`throttle_counters`], but cached until processors are added or removed.
fn throttle_counters_now(processors: &Path) -> Vec<String> {
    /// The list of online processors, and the counters found with it.
    static LAST: Mutex<Option<(Vec<u8>, Vec<String>)>> = Mutex::new(None);
    let Ok(online) = fs::read(processors.join("online")) else { return throttle_counters(processors).0 };
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, counters)) = last.as_ref().filter(|(cached, _)| *cached == online) {
        return counters.clone();
    }
    let (counters, is_all) = throttle_counters(processors);
    *last = is_all.then(|| (online, counters.clone()));
    counters
}

/// Returns the existing paths `<processors>/cpu<n>/thermal_throttle`, sorted, and whether the list is complete. Most
/// physical machines have such counters, virtual machines do not.
fn throttle_counters(processors: &Path) -> (Vec<String>, bool) {
    let is_processor = |name: &str| {
        name.strip_prefix("cpu").is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    let (mut counters, mut is_all) = (Vec::new(), true);
    let entries = fs::read_dir(processors).inspect_err(|_| is_all = false).into_iter().flatten();
    for entry in entries {
        let Ok(entry) = entry else {
            is_all = false;
            continue;
        };
        if !entry.file_name().to_str().is_some_and(is_processor) {
            continue;
        }
        let counter = entry.path().join(THROTTLE);
        // If the check fails, the path may exist. Masking a path that does not exist is harmless.
        let exists = counter.try_exists().inspect_err(|_| is_all = false).unwrap_or(true);
        counters.extend(counter.to_str().filter(|_| exists).map(str::to_owned));
    }
    counters.sort();
    (counters, is_all)
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
        assert_eq!(throttle_counters(sys.path()), (expected.to_vec(), true));
        assert_eq!(throttle_counters(Path::new("/nonexistent")), (Vec::new(), false));
    }
}
