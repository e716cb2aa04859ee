//! Pinion itself: configuration, daemon, programs, unit.

use crate::{DaemonState, Node, finding::Verdict, systemd};

pub(super) fn config(node: &Node) -> Vec<Verdict> {
    match &node.settings.error {
        None => vec![Verdict::ok("the configuration is valid")],
        Some(error) => error.lines().map(|line| Verdict::problem(line).fix("pinion config check")).collect(),
    }
}

pub(super) fn daemon(node: &Node) -> Vec<Verdict> {
    let start = if systemd::is_init(&node.host) { "systemctl enable --now pinion" } else { "pinion serve" };
    match &node.daemon {
        DaemonState::Unreachable(error) if node.is_switched() => {
            vec![
                Verdict::problem(format!("the kubelet uses Pinion, but the daemon does not respond: {error}"))
                    .fix(start),
            ]
        }
        DaemonState::Unreachable(error) => {
            vec![Verdict::warning(format!("the daemon does not respond: {error}")).fix(start)]
        }
        DaemonState::Running { version, expected, not_ready } => {
            let mut verdicts: Vec<Verdict> =
                not_ready.iter().map(|condition| Verdict::problem(condition).fix("pinion info")).collect();
            if version != expected {
                let text = format!("the daemon has version {version}, this program {expected}");
                verdicts.push(Verdict::warning(text).fix("pinion upgrade"));
            }
            if verdicts.is_empty() {
                verdicts.push(Verdict::ok(format!("the daemon ({version}) is ready")));
            }
            verdicts
        }
    }
}

pub(super) fn monitor(node: &Node) -> Vec<Verdict> {
    vec![match &node.settings.monitor {
        Ok(path) => Verdict::ok(format!("the monitor program is {}", path.display())),
        Err(error) => Verdict::problem(error).fix("install pinmon next to pinion, or set the key monitor"),
    }]
}

pub(super) fn unit(node: &Node) -> Vec<Verdict> {
    let enabled = ["pinion.service", "pinion.socket"].iter().any(|unit| systemd::is_enabled(&node.host, unit));
    vec![match (&node.unit, systemd::is_init(&node.host)) {
        (_, false) => Verdict::notice("systemd is not the init of this node: start the daemon at boot by other means"),
        (None, true) => Verdict::warning("pinion.service is not installed").fix("make install"),
        (Some(_), true) if !enabled => {
            Verdict::warning("neither pinion.service nor pinion.socket is enabled").fix("systemctl enable --now pinion")
        }
        (Some(unit), true) if unit.values("KillMode").last() != Some(&"process") => {
            let text = "pinion.service has no KillMode=process: a stop kills the monitor and every running exec";
            Verdict::problem(text).fix("remove KillMode= from the drop-ins of pinion.service; systemctl daemon-reload")
        }
        (Some(_), true) => Verdict::ok("the unit is enabled"),
    }]
}
