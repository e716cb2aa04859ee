//! Resource limits of the daemon.

use crate::{Node, finding::Verdict};

/// Enough for several thousand containers.
const OPEN_FILES: u64 = 65_536;

pub(super) fn open_files(node: &Node) -> Vec<Verdict> {
    let daemon = node.processes.iter().find(|process| {
        process.name == "pinion" && process.arguments.get(1).is_some_and(|argument| argument == "serve")
    });
    let limit = match daemon {
        Some(daemon) => node.host.read(format!("/proc/{}/limits", daemon.pid)).and_then(|text| hard_limit(&text)),
        None => node.probes.open_files,
    };
    let owner = if daemon.is_some() { "the daemon" } else { "this process" };
    vec![match limit {
        None => Verdict::notice("the limit of open files cannot be read"),
        // The unit sets a limit of its own.
        Some(Some(limit)) if limit < OPEN_FILES && daemon.is_none() => {
            Verdict::notice(format!("the hard limit of open files of {owner} is {limit}, less than {OPEN_FILES}"))
        }
        Some(Some(limit)) if limit < OPEN_FILES => {
            Verdict::warning(format!("the hard limit of open files of {owner} is {limit}, less than {OPEN_FILES}"))
                .fix("set LimitNOFILE=1048576 in pinion.service; systemctl daemon-reload && systemctl restart pinion")
        }
        Some(Some(limit)) => Verdict::ok(format!("the hard limit of open files of {owner} is {limit}")),
        Some(None) => Verdict::ok(format!("open files of {owner} are not limited")),
    }]
}

/// Parses the hard limit of open files in `/proc/PID/limits`; `Some(None)`: unlimited.
fn hard_limit(text: &str) -> Option<Option<u64>> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().nth(1)? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_parsed() {
        let text = "Limit   Soft  Hard  Units\nMax open files            1024                 524288               files     \n";
        assert_eq!(hard_limit(text), Some(Some(524_288)));
        assert_eq!(hard_limit("Max open files 1 unlimited files"), Some(None));
        assert_eq!(hard_limit(""), None);
    }
}
