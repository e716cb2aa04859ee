//! docs/doctor.md lists every check.

use std::fs;

use doctor::CHECKS;

#[test]
fn every_check_is_documented_in_order() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md");
    let text = fs::read_to_string(path).expect("docs/doctor.md");
    let rows = text.split("\n## Checks\n").nth(1).expect("the section").lines();
    let ids: Vec<&str> = rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect();
    let expected: Vec<&str> = CHECKS.iter().map(|check| check.id).collect();
    assert_eq!(ids, expected, "left: docs/doctor.md; right: the checks");
}
