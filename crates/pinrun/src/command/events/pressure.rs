//! Pressure stall information of a v2 cgroup (Linux 5.2, `CONFIG_PSI`).

use cgroup::Group;
use serde_json::{Value, json};

/// Returns runc's `PSIStats` for `cpu`, `memory` or `io`, or `None` if the kernel does not provide them.
pub(super) fn pressure(group: &Group, resource: &str) -> Option<Value> {
    let controller = if resource == "io" { "blkio" } else { resource };
    if !group.is_v2(controller) {
        return None;
    }
    parse(&group.read(controller, &format!("{resource}.pressure"))?)
}

/// Parses `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, and the same line for `full`.
fn parse(text: &str) -> Option<Value> {
    let empty = || json!({"avg10": 0.0, "avg60": 0.0, "avg300": 0.0, "total": 0});
    let mut both = json!({"some": empty(), "full": empty()});
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let kind = words.next().filter(|kind| ["some", "full"].contains(kind))?;
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            both[kind][key] = match key {
                "total" => value.parse::<u64>().ok()?.into(),
                _ => value.parse::<f64>().ok()?.into(),
            };
        }
    }
    Some(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_files_are_parsed() {
        let text = "some avg10=1.50 avg60=0.00 avg300=0.00 total=42\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        let read = parse(text).unwrap();
        assert_eq!(
            (&read["some"]["avg10"], &read["some"]["total"], &read["full"]["total"]),
            (&json!(1.5), &json!(42), &json!(7))
        );
        assert_eq!(parse("something else"), None);
    }
}
