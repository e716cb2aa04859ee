//! Checks that modules of a directory use each other in one direction only, so that the reader of a module has to know
//! only the modules below it.

use tidy::cycles;

/// Places with a known cycle, and why it still exists.
const KNOWN: [(&str, &str); 5] = [
    ("pinmon", "the components of the event loop reach into each other's maps through `Monitor`"),
    ("pod", "operations on pods and containers share `engine::Inner`"),
    ("pod::container", "preparation of a container and its pre-opened files"),
    ("pod::sandbox", "namespaces and the files of /etc that they share"),
    ("pod::stats", "the sampler and what it measures"),
];

#[test]
fn modules_have_no_cycles() {
    let cycles = cycles();
    let lines: Vec<String> = cycles
        .iter()
        .filter(|cycle| !KNOWN.iter().any(|(place, _)| cycle.place == *place))
        .map(|cycle| format!("{}: {}\n    {}", cycle.place, cycle.members.join(", "), cycle.uses.join("\n    ")))
        .collect();
    assert!(lines.is_empty(), "move the code that both modules need into one below them:\n{}", lines.join("\n"));
}

#[test]
fn known_cycles_exist() {
    let cycles = cycles();
    let fixed: Vec<&str> = KNOWN
        .iter()
        .map(|(place, _)| *place)
        .filter(|place| !cycles.iter().any(|cycle| cycle.place == *place))
        .collect();
    assert!(fixed.is_empty(), "{} without a cycle: remove from KNOWN", fixed.join(", "));
}
