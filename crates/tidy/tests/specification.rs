//! Checks that docs/runtime-spec.md covers every property of the runtime specification, and that the tests that it and
//! SPECIFICATION.md name exist.

use std::fs;

use tidy::workspace_root;

const RUNTIME_SPECIFICATION: &str = "docs/runtime-spec.md";
const SPECIFICATION: &str = "SPECIFICATION.md";

fn read(document: &str) -> String {
    fs::read_to_string(workspace_root().join(document)).unwrap_or_else(|cause| panic!("{document}: {cause}"))
}

/// Returns the parts of `text` that are in backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns the JSON name of a field: the name of an attribute that renames it, else the field's name in camel case.
fn json_name(field: &str, renamed: Option<&str>) -> String {
    if let Some(name) = renamed {
        return name.to_owned();
    }
    let mut parts = field.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |name, part| name + &part[..1].to_uppercase() + &part[1..])
}

/// Lists the properties of all structs of the specification.
fn properties() -> Vec<String> {
    let mut names = Vec::new();
    for file in ["spec", "process", "linux", "resources", "mount", "seccomp", "state"] {
        let path = workspace_root().join(format!("crates/oci/src/{file}.rs"));
        let text = fs::read_to_string(&path).expect("a file of crate oci");
        let mut renamed = None;
        for line in text.lines().map(str::trim) {
            if let Some((_, rest)) = line.split_once("#[serde(rename = \"") {
                renamed = rest.split('"').next();
            }
            let field = line.strip_prefix("pub ").and_then(|rest| rest.split_once(": ")).map(|(name, _)| name);
            if let Some(field) = field.filter(|name| name.bytes().all(|b| b == b'_' || b.is_ascii_lowercase())) {
                names.push(json_name(field, renamed.take()));
            } else if !line.starts_with('#') && !line.starts_with("//") {
                // The attribute belongs to an item that is not a field.
                renamed = None;
            }
        }
    }
    names
}

#[test]
fn every_property_is_documented() {
    let text = read(RUNTIME_SPECIFICATION);
    let words: Vec<&str> = quoted(&text).iter().flat_map(|word| word.split(['.', '[', ']', '*'])).collect();
    let missing: Vec<_> = properties().into_iter().filter(|name| !words.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "{RUNTIME_SPECIFICATION} lacks {missing:?}");
}

/// Returns the directory of a suite that documents name: the tests of `suite::file::test` are in `file.rs` there.
fn directory(suite: &str) -> &'static str {
    match suite {
        "container" => "crates/container/tests/kernel/cases",
        "oci" => "tests/oci/tests/suite",
        "cgroup" => "crates/cgroup/tests/kernel",
        "seccomp" => "crates/seccomp/src",
        "vm" => "tests/vm/tests/guest",
        "system" => "tests/system/tests",
        "image" => "crates/image/tests",
        "pinmon" => "crates/pinmon/tests",
        "pod" => "crates/pod/tests",
        "tidy" => "crates/tidy/tests",
        other => panic!("{other} is not a suite"),
    }
}

#[test]
fn every_named_test_exists() {
    let mut missing = Vec::new();
    for document in [SPECIFICATION, RUNTIME_SPECIFICATION] {
        let text = read(document);
        let names: Vec<&str> = quoted(&text).into_iter().filter(|word| word.contains("::")).collect();
        assert!(!names.is_empty(), "{document} names no tests: the scan is broken");
        for name in names {
            let parts: Vec<&str> = name.split("::").collect();
            let [suite, file, test] = parts[..] else { panic!("{name} is not suite::file::test") };
            let path = workspace_root().join(directory(suite)).join(format!("{file}.rs"));
            if !fs::read_to_string(&path).is_ok_and(|source| source.contains(&format!("fn {test}("))) {
                missing.push(format!("{document}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "named tests that do not exist:\n{}", missing.join("\n"));
}

/// Every row of a table of budgets names the test that holds it.
#[test]
fn every_budget_has_a_test() {
    let text = read(SPECIFICATION);
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| budget |"));
    let (mut count, mut bad) = (0, Vec::new());
    for row in rows {
        count += 1;
        let test = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
        bad.extend((!test.starts_with('`') || !test.contains("::")).then_some(row));
    }
    assert!(count > 10, "only {count} budgets found: the scan is broken");
    assert!(bad.is_empty(), "budgets without a test:\n{}", bad.join("\n"));
}
