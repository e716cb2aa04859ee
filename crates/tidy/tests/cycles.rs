//! Checks that modules of a directory use each other in one direction only, so that the reader of a module has to know
//! only the modules below it.

use tidy::cycles;

#[test]
fn modules_have_no_cycles() {
    let cycles = cycles();
    let lines: Vec<String> = cycles
        .iter()
        .map(|cycle| format!("{}: {}\n    {}", cycle.place, cycle.members.join(", "), cycle.uses.join("\n    ")))
        .collect();
    assert!(lines.is_empty(), "move the code that both modules need into one below them:\n{}", lines.join("\n"));
}
