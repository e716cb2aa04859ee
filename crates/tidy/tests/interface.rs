//! Checks that docs/cri.md covers every call, message and field of the CRI, and that the tests it names exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use tidy::workspace_root;

fn document() -> String {
    fs::read_to_string(workspace_root().join("docs/cri.md")).expect("docs/cri.md")
}

/// Returns the parts of `text` that are in backquotes.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Parses the protocol: the names of all calls, and all messages with their fields. Omits messages for Windows.
fn interface() -> (Vec<String>, BTreeMap<String, Vec<String>>) {
    let text = fs::read_to_string(workspace_root().join("crates/cri-proto/proto/cri-v1.proto")).expect("the protocol");
    let (mut calls, mut messages) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
    let mut current_message: Option<String> = None;
    let mut depth = 0;
    for line in text.lines().map(|line| line.split("//").next().unwrap_or_default()) {
        // The options of a field follow in brackets.
        let line = line.split('[').next().unwrap_or_default().trim();
        let words: Vec<&str> = line.split([' ', '(', '{', ';']).filter(|word| !word.is_empty()).collect();
        match (depth, words.as_slice()) {
            (1, ["rpc", name, ..]) => calls.push((*name).to_owned()),
            (0, ["message", name, ..]) => current_message = Some((*name).to_owned()),
            (0, ["service" | "enum", ..]) => current_message = None,
            (1, [.., name, "=", _]) => {
                if let Some(message) = current_message.as_ref().filter(|message| !message.starts_with("Windows")) {
                    messages.entry(message.clone()).or_default().push((*name).to_owned());
                }
            }
            _ => {}
        }
        depth += line.matches('{').count();
        depth -= line.matches('}').count();
    }
    assert!(calls.len() >= 40 && messages.len() >= 120, "{} calls, {} messages", calls.len(), messages.len());
    (calls, messages)
}

#[test]
fn every_call_and_field_is_documented() {
    let text = document();
    let mut sections = text.split("\n#");
    let all = quoted(&text);
    let mut documented: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for section in sections.by_ref() {
        let Some((heading, body)) = section.strip_prefix("## ").and_then(|section| section.split_once('\n')) else {
            continue;
        };
        for message in heading.split(", ") {
            documented.insert(message, quoted(body));
        }
    }
    let (calls, messages) = interface();
    let mut missing: Vec<String> = calls.into_iter().filter(|call| !all.contains(call.as_str())).collect();
    for (message, fields) in &messages {
        let known = documented.get(message.as_str());
        let is_missing = |field: &&String| !known.is_some_and(|known| known.contains(field.as_str()));
        missing.extend(fields.iter().filter(is_missing).map(|field| format!("{message}.{field}")));
    }
    assert!(missing.is_empty(), "docs/cri.md lacks {missing:?}");
    let unknown: Vec<_> = documented.keys().filter(|message| !messages.contains_key(**message)).collect();
    assert!(unknown.is_empty(), "docs/cri.md has sections of unknown messages: {unknown:?}");
}

#[test]
fn every_named_test_exists() {
    let text = document();
    let mut missing = Vec::new();
    for name in quoted(&text).iter().filter(|word| word.contains("::")) {
        let parts: Vec<&str> = name.split("::").collect();
        let [suite, file, test] = parts[..] else { panic!("{name} is not suite::file::test") };
        let directories: &[&str] = match suite {
            "cri" => &["crates/cri/src"],
            "pod" => &["crates/pod/tests"],
            "unit" => &["crates/pod/src"],
            "network" => &["crates/network/tests"],
            "image" => &["crates/image/tests"],
            "cgroup" => &["crates/cgroup/tests/kernel"],
            "cdi" => &["crates/cdi/src"],
            "oci" => &["tests/oci/tests/suite"],
            "system" => &["tests/system/tests"],
            "vm" => &["tests/vm/tests/guest"],
            other => panic!("{other} is not a suite"),
        };
        // A test is in the source file itself or in `tests.rs` below it.
        let files = directories
            .iter()
            .flat_map(|directory| [format!("{directory}/{file}.rs"), format!("{directory}/{file}/tests.rs")]);
        let has = |file: String| {
            fs::read_to_string(workspace_root().join(file)).is_ok_and(|source| source.contains(&format!("fn {test}(")))
        };
        if !files.into_iter().any(has) {
            missing.push(*name);
        }
    }
    assert!(missing.is_empty(), "docs/cri.md names tests that do not exist: {missing:?}");
}
