//! The table of the runtime specification says something of every property, and names tests that are there.

use std::fs;

use tidy::workspace_root;

fn table() -> String {
    fs::read_to_string(workspace_root().join("docs/runtime-spec.md")).expect("docs/runtime-spec.md")
}

/// What stands in backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// A field's name in JSON: its own, in camel case, unless an attribute renames it.
fn json_name(field: &str, renamed: Option<&str>) -> String {
    if let Some(name) = renamed {
        return name.to_owned();
    }
    let mut parts = field.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |name, part| name + &part[..1].to_uppercase() + &part[1..])
}

/// Of all structs of the specification.
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
                // It was of something else.
                renamed = None;
            }
        }
    }
    names
}

#[test]
fn every_property_is_in_the_table() {
    let text = table();
    let words: Vec<&str> = quoted(&text).iter().flat_map(|word| word.split(['.', '[', ']', '*'])).collect();
    let missing: Vec<_> = properties().into_iter().filter(|name| !words.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "docs/runtime-spec.md says nothing of {missing:?}");
}

#[test]
fn every_test_of_the_table_is_there() {
    let text = table();
    let mut missing = Vec::new();
    for name in quoted(&text).iter().filter(|word| word.contains("::")) {
        let parts: Vec<&str> = name.split("::").collect();
        let [suite, file, test] = parts[..] else { panic!("{name} is not suite::file::test") };
        let directory = match suite {
            "container" => "crates/container/tests/kernel/cases",
            "oci" => "tests/oci/tests/suite",
            "cgroup" => "crates/cgroup/tests/kernel",
            "seccomp" => "crates/seccomp/src",
            "vm" => "tests/vm/tests/guest",
            other => panic!("{other} is no suite"),
        };
        let path = workspace_root().join(directory).join(format!("{file}.rs"));
        let found = fs::read_to_string(&path).is_ok_and(|source| source.contains(&format!("fn {test}(")));
        if !found {
            missing.push(*name);
        }
    }
    assert!(missing.is_empty(), "docs/runtime-spec.md names tests that are not there: {missing:?}");
}
