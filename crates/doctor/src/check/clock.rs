//! The clock.

use crate::{Node, finding::Verdict};

/// Daemons that synchronize the clock.
const DAEMONS: [&str; 5] = ["chronyd", "ntpd", "systemd-timesyn", "openntpd", "ntpd-rs"];

pub(super) fn synchronized(node: &Node) -> Vec<Verdict> {
    let daemon = node.processes.iter().find(|process| DAEMONS.contains(&process.name.as_str()));
    vec![match (node.probes.clock, daemon) {
        (Some(clock), _) if clock.is_synchronized => {
            Verdict::ok(format!("the clock is synchronized (estimated error {} µs)", clock.estimated_error))
        }
        (Some(_), Some(daemon)) => {
            Verdict::notice(format!("{} is running, but the clock is not synchronized yet", daemon.name))
        }
        (Some(_), None) => Verdict::warning("the clock is not synchronized, and no daemon for it is running")
            .fix("apt-get install chrony, or: systemctl enable --now systemd-timesyncd"),
        (None, _) => Verdict::notice("the state of the clock was not read"),
    }]
}
