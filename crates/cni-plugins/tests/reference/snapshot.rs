//! The state of a node and its pod, without what differs by chance.

use std::time::Duration;

use serde_json::{Map, Value, json};

use testbed::wait_until;

use crate::node::Node;

/// Keys whose values are numbers of the kernel or depend on the time.
const BY_CHANCE: [&str; 17] = [
    "ifindex",
    "link_index",
    "link_netnsid",
    "operstate",
    "bridge_id",
    "root_id",
    "designated_bridge",
    "designated_root",
    "tentative",
    "handle",
    "dynamic",
    "valid_life_time",
    "preferred_life_time",
    "refcnt",
    "topology_change",
    "topology_change_detected",
    "flags",
];
/// Programs that print JSON, in the namespaces of both.
const COMMANDS: [(&str, &str); 5] = [
    ("links", "ip -j -d link"),
    ("addresses", "ip -j addr"),
    ("routes", "ip -j route show table all"),
    ("routes6", "ip -6 -j route show table all"),
    ("rules", "ip -j rule"),
];

/// Takes the state of a node and its pod.
pub(crate) fn take(node: &Node) -> Value {
    let is_settled = || {
        let tentative = |text: String| text.trim().is_empty();
        tentative(node.shell("ip -6 -o addr show tentative"))
            && tentative(node.pod_shell("ip -6 -o addr show tentative"))
    };
    wait_until("duplicate address detection has ended", Duration::from_secs(10), is_settled);
    let mut state = Map::new();
    for (place, shell) in
        [("node", node.shell("ls /proc/sys/net/ipv4/conf")), ("pod", node.pod_shell("ls /proc/sys/net/ipv4/conf"))]
    {
        let run = |script: &str| if place == "node" { node.shell(script) } else { node.pod_shell(script) };
        for (name, command) in COMMANDS {
            let value = serde_json::from_str(&run(command)).unwrap_or(Value::Null);
            state.insert(format!("{place}: {name}"), clean(value));
        }
        let links: Vec<&str> = shell.split_whitespace().collect();
        let sysctls = run(
            "grep -H . /proc/sys/net/ipv4/conf/*/* /proc/sys/net/ipv6/conf/*/* /proc/sys/net/core/somaxconn /proc/sys/net/ipv4/ip_forward 2>/dev/null || true",
        );
        let mut lines: Vec<String> =
            sysctls.lines().filter(|line| !line.contains("stable_secret")).map(plain).collect();
        lines.sort();
        state.insert(format!("{place}: sysctls of {} links", links.len()), json!(lines));
        state.insert(
            format!("{place}: qdiscs"),
            json!(lines_of(&run("tc qdisc show | grep -E \"tbf|ingress\" || true"))),
        );
    }
    state.insert("node: rules of nftables".into(), json!(rules(&node.shell("nft list ruleset"))));
    Value::Object(state)
}

fn lines_of(text: &str) -> Vec<String> {
    text.lines().map(|line| plain(line.trim())).collect()
}

/// Rules without the comments of tables and chains, which only the reference plugins have.
fn rules(text: &str) -> Vec<String> {
    let is_of_object = |line: &String| line.starts_with("comment ") || line.is_empty();
    // A mask of zero matches everything.
    let everything = |line: String| line.replace("ip saddr 0.0.0.0/0 ", "");
    lines_of(text).into_iter().filter(|line| !is_of_object(line)).map(everything).collect()
}

fn clean(value: Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(
            object
                .into_iter()
                .filter(|(key, _)| !BY_CHANCE.contains(&key.as_str()) && !key.ends_with("_timer"))
                .map(|(key, value)| (key, clean(value)))
                .collect(),
        ),
        Value::Array(list) => {
            let mut list: Vec<Value> = list.into_iter().map(clean).collect();
            list.sort_by_key(ToString::to_string);
            Value::Array(list)
        }
        Value::String(text) => Value::String(plain(&text)),
        other => other,
    }
}

/// Replaces MAC addresses that the kernel chose, what is derived from them, and random names.
pub(crate) fn plain(text: &str) -> String {
    let word = |word: &str| {
        let is_mac = word.len() == 17 && word.split(':').count() == 6 && word.split(':').all(|part| part.len() == 2);
        if is_mac && !word.starts_with("02:00:00:00:00:") && !word.starts_with("00:00") && !word.starts_with("ff:ff") {
            return "<mac>".to_owned();
        }
        if word.starts_with("fe80::") && word.len() > 7 {
            return "<link-local>".to_owned();
        }
        if word.strip_prefix("veth").is_some_and(|rest| rest.len() >= 8 && rest.bytes().all(|b| b.is_ascii_hexdigit()))
        {
            return "<veth>".to_owned();
        }
        word.to_owned()
    };
    let is_separator = |c: char| c.is_whitespace() || "\"/,;()".contains(c);
    let mut plain = String::new();
    for piece in text.split_inclusive(is_separator) {
        let end = piece.len() - piece.chars().next_back().filter(|c| is_separator(*c)).map_or(0, char::len_utf8);
        plain.push_str(&word(&piece[..end]));
        plain.push_str(&piece[end..]);
    }
    plain
}

/// Returns the differences of two states, as lines.
pub(crate) fn differences(path: &str, theirs: &Value, ours: &Value, found: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let (a, b) = (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
                differences(&format!("{path}.{key}"), a, b, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.iter().chain(b).all(Value::is_string) => {
            let only =
                |a: &[Value], b: &[Value]| a.iter().filter(|item| !b.contains(item)).cloned().collect::<Vec<_>>();
            found.extend(only(a, b).iter().map(|item| format!("{path}: only theirs: {item}")));
            found.extend(only(b, a).iter().map(|item| format!("{path}: only ours: {item}")));
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{path}[{index}]"), a, b, found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{path}: theirs {a}, ours {b}")),
    }
}
