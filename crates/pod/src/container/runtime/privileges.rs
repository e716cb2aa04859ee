//! Privileges of a process that another program than the monitor starts.

use oci::{Capabilities, Process};
use rustix::thread::CapabilitySet;

/// Reduces capabilities and OOM score to what this process may grant, as the monitor does: other runtimes fail instead.
pub(crate) fn limit_to_own(process: &mut Process) {
    let Ok(own) = rustix::thread::capabilities(None) else { return };
    if let Some(sets) = &mut process.capabilities {
        let Capabilities { bounding, effective, inheritable, permitted, ambient } = sets;
        for set in [bounding, effective, inheritable, permitted, ambient] {
            set.retain(|name| capability(name).is_none_or(|capability| own.permitted.contains(capability)));
        }
    }
    if !own.effective.contains(CapabilitySet::SYS_RESOURCE) {
        let floor = own_oom_score().unwrap_or(0);
        process.oom_score_adj = process.oom_score_adj.map(|score| score.max(floor));
    }
}

/// Returns the capability of this name; `None` if it is unknown here.
fn capability(name: &str) -> Option<CapabilitySet> {
    CapabilitySet::from_name(name.strip_prefix("CAP_").unwrap_or(name))
}

fn own_oom_score() -> Option<i32> {
    std::fs::read_to_string("/proc/self/oom_score_adj").ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_known_by_their_names() {
        assert_eq!(capability("CAP_SYS_ADMIN"), Some(CapabilitySet::SYS_ADMIN));
        assert_eq!(capability("CAP_NO_SUCH"), None);
    }

    #[test]
    fn capabilities_that_this_process_lacks_are_not_granted() {
        let own = rustix::thread::capabilities(None).expect("capabilities").permitted;
        let names = ["CAP_SYS_RESOURCE", "CAP_CHOWN", "CAP_NO_SUCH"].map(str::to_owned);
        let sets = Capabilities { bounding: names.to_vec(), ..Capabilities::default() };
        let mut process = Process { capabilities: Some(sets), ..Process::default() };
        limit_to_own(&mut process);
        let granted = process.capabilities.expect("capabilities").bounding;
        let expected = |name: &&String| capability(name).is_none_or(|capability| own.contains(capability));
        assert_eq!(granted, names.iter().filter(expected).cloned().collect::<Vec<_>>());
    }
}
