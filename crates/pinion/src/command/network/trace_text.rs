//! The way of a packet as text.

use packet_trace::{Answer, Found, Step, Trace};

use crate::table::printable;

/// Returns the lines of a trace from a pod; those of the answer if they are requested, or the answer is lost.
pub(super) fn lines(trace: &Trace, pod: &str, with_answer: bool) -> Vec<String> {
    let port = |address: std::net::SocketAddr| match trace.protocol {
        "icmp" => address.ip().to_string(),
        _ => address.to_string(),
    };
    let mut lines = vec![format!("{} {} → {}", trace.protocol, port(trace.source), port(trace.destination))];
    steps(&trace.steps, &mut lines);
    let is_lost = matches!(trace.answer, Answer::Silent) && trace.back.iter().any(|step| is_shown(&step.found));
    if with_answer || is_lost {
        lines.push("answer".to_owned());
        steps(&trace.back, &mut lines);
    }
    if trace.incomplete {
        lines.push("the kernel lost some of its reports: rules may be missing".to_owned());
    }
    lines.push(String::new());
    lines.push(conclusion(trace, pod));
    // Names and comments may be those of a pod.
    lines.iter().map(|line| printable(line)).collect()
}

fn steps(steps: &[Step], lines: &mut Vec<String>) {
    let mut place = None;
    for step in steps.iter().filter(|step| is_shown(&step.found)) {
        if place != Some(&step.pod) {
            place = Some(&step.pod);
            lines.push(step.pod.as_ref().map_or_else(|| "on the node".to_owned(), |pod| format!("in pod {pod}")));
        }
        lines.push(format!("  {}", line(&step.found)));
    }
}

/// Policies that accept a packet say nothing.
fn is_shown(found: &Found) -> bool {
    !matches!(found, Found::Policy { verdict, .. } if verdict == "accept")
}

fn line(found: &Found) -> String {
    match found {
        Found::Route { destination, kind, table, gateway, link, .. } => {
            let kind = if *kind == "unicast" { String::new() } else { format!("{kind} ") };
            let gateway = gateway.map_or_else(String::new, |gateway| format!(" via {gateway}"));
            let table = match table {
                254 => String::new(),
                255 => " in table local".to_owned(),
                table => format!(" in table {table}"),
            };
            format!("route     {kind}{destination}{gateway} by {link}{table}")
        }
        Found::NoRoute { destination, reason } => format!("route     none to {destination}: {reason}"),
        Found::Neighbor { address, mac: Some(mac), link } => format!("neighbour {address} is {mac} on {link}"),
        Found::Neighbor { address, mac: None, link } => format!("neighbour {address} does not answer on {link}"),
        Found::Link { name, kind, bridge, sends, packets, lost } => {
            let kind = if kind.is_empty() { String::new() } else { format!(" ({kind})") };
            let bridge = bridge.as_ref().map_or_else(String::new, |bridge| format!(" of {bridge}"));
            let count = if *sends { "sent" } else { "received" };
            let lost = if *lost == 0 { String::new() } else { format!(", {lost} lost") };
            format!("link      {name}{bridge}{kind}: {packets} {count}{lost}")
        }
        Found::Tunnel { link, vni, endpoint } => {
            let endpoint = endpoint.map_or_else(|| "an unknown node".to_owned(), |endpoint| format!("node {endpoint}"));
            let kind = vni.map_or_else(|| "WireGuard".to_owned(), |vni| format!("VXLAN {vni}"));
            format!("tunnel    {link}, {kind}, to {endpoint}")
        }
        Found::Rule { table, chain, handle, text, verdict } => {
            let verdict = if verdict == "continue" { String::new() } else { format!(" → {verdict}") };
            let text = text.as_deref().map_or_else(String::new, |text| format!(": {text}"));
            format!("rule      {table} {chain} #{handle}{text}{verdict}")
        }
        Found::Policy { table, chain, verdict } => format!("policy    {table} {chain}: {verdict}"),
        Found::Source { from, to } => format!("source    {from} becomes {to}"),
        Found::Destination { from, to } => format!("target    {from} becomes {to}"),
        Found::Delivered => "delivered".to_owned(),
        Found::Vanished => "dropped by what nftables does not report: iptables-legacy, netdev, tc or BPF".to_owned(),
    }
}

fn conclusion(trace: &Trace, pod: &str) -> String {
    let outcome = match &trace.answer {
        Answer::Answered { microseconds } => {
            return format!("{} answered after {}", trace.destination.ip(), milliseconds(*microseconds));
        }
        Answer::Refused => format!("{} is refused", trace.destination),
        Answer::Unreachable { reason } => format!("{} cannot be reached: {reason}", trace.destination.ip()),
        Answer::Silent => format!("{} did not answer", trace.destination.ip()),
    };
    let reason = match trace.lost() {
        Some(step) => {
            let line = line(&step.found);
            let (label, rest) = line.split_once(' ').unwrap_or((&line, ""));
            format!("; the packet ends {}: {label} {}", place(step, pod), rest.trim_start())
        }
        None if trace.is_delivered() && matches!(trace.answer, Answer::Silent) => {
            "; the packet was delivered".to_owned()
        }
        None => String::new(),
    };
    format!("{outcome}{reason}")
}

fn place(step: &Step, pod: &str) -> String {
    match &step.pod {
        None => "on the node".to_owned(),
        Some(name) if name == pod => "in the pod".to_owned(),
        Some(name) => format!("in pod {name}"),
    }
}

fn milliseconds(microseconds: u64) -> String {
    format!("{}.{:03} ms", microseconds / 1000, microseconds % 1000)
}
