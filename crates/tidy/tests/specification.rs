//! Checks that docs/runtime-spec.md covers every property of the runtime specification, and that the tests it names
//! exist.

use std::fs;

use tidy::workspace_root;

fn document() -> String {
    fs::read_to_string(workspace_root().join("docs/runtime-spec.md")).expect("docs/runtime-spec.md")
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
    let text = document();
    let words: Vec<&str> = quoted(&text).iter().flat_map(|word| word.split(['.', '[', ']', '*'])).collect();
    let missing: Vec<_> = properties().into_iter().filter(|name| !words.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "docs/runtime-spec.md lacks {missing:?}");
}

#[test]
fn every_named_test_exists() {
    let text = document();
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
            other => panic!("{other} is not a suite"),
        };
        let path = workspace_root().join(directory).join(format!("{file}.rs"));
        let exists = fs::read_to_string(&path).is_ok_and(|source| source.contains(&format!("fn {test}(")));
        if !exists {
            missing.push(*name);
        }
    }
    assert!(missing.is_empty(), "docs/runtime-spec.md names tests that do not exist: {missing:?}");
}
