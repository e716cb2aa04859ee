//! Checks the documents for operators against the program: a misspelt key or a message that does not exist anymore
//! costs a reader more than a missing sentence.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use tidy::{rust_sources, tracked_files, workspace_root};

/// The document whose tables quote messages of the programs in their first column, under the heading `message`.
const TROUBLESHOOTING: &str = "docs/troubleshooting.md";
/// The file that lists every key of the configuration with its default.
const DEFAULTS: &str = "crates/pinion/src/daemon/default.toml";
/// The document that describes every key.
const REFERENCE: &str = "docs/configuration.md";
/// Documents in which names with a dot are something else: files of cgroups, fields of specifications, keys of other
/// engines, checks of a node.
const OTHER_NAMES: [&str; 4] = ["docs/doctor.md", "docs/migration.md", "docs/pinmon.md", "docs/runtime-spec.md"];
/// Words after a dot that make a name in backquotes a file and not a key, such as `registries.conf` of CRI-O.
const FILES: [&str; 4] = ["conf", "json", "rs", "toml"];
/// Shortest part of a message that is looked up: shorter ones are in some source by chance.
const PART_MIN: usize = 8;

fn read(path: &str) -> String {
    fs::read_to_string(workspace_root().join(path)).unwrap_or_else(|error| panic!("read {path}: {error}"))
}

/// Reads the README and the documents of `docs`, except for decisions, which describe the past.
fn documents() -> Vec<(PathBuf, String)> {
    let is_document = |path: &PathBuf| {
        let in_docs = path.parent().is_some_and(|parent| parent == "docs" || parent == "");
        in_docs && path.extension().is_some_and(|extension| extension == "md")
    };
    let paths = tracked_files().into_iter().filter(is_document);
    let documents: Vec<_> = paths
        .map(|path| (path.clone(), fs::read_to_string(workspace_root().join(&path)).expect("a document")))
        .collect();
    assert!(documents.len() > 10, "only {} documents found: the scan is broken", documents.len());
    documents
}

/// Returns the sections of the configuration with their keys; keys that are commented out count. The section of keys
/// before the first one is `""`.
fn sections() -> BTreeMap<String, BTreeSet<String>> {
    let mut sections: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut section = String::new();
    for line in read(DEFAULTS).lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut section);
            sections.entry(section.clone()).or_default();
        } else if let Some((key, _)) = line.trim_start_matches("# ").split_once(" = ") {
            sections.entry(section.clone()).or_default().insert(key.to_owned());
        }
    }
    assert!(sections.len() > 5 && sections[""].contains("data_dir"), "no keys found: the scan is broken");
    sections
}

/// Returns the texts in backquotes of a line, outside of code blocks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Returns the lines of a document outside of code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        !in_block && !fence
    })
}

#[test]
fn keys_of_the_configuration_exist() {
    let sections = sections();
    let is_key = |name: &str| {
        let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        !name.is_empty() && plain && !FILES.contains(&name)
    };
    let (mut seen, mut bad) = (0, Vec::new());
    let has_keys = |path: &PathBuf| !OTHER_NAMES.iter().any(|other| path == Path::new(other));
    for (path, text) in documents().into_iter().filter(|(path, _)| has_keys(path)) {
        for (number, line) in prose(&text) {
            for name in quoted(line) {
                // `[section]`, in the document of all keys: others name sections of other programs, too.
                let section = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                if section.is_some_and(|section| path == Path::new(REFERENCE) && !sections.contains_key(section)) {
                    bad.push(format!("{}:{}: {name}", path.display(), number + 1));
                }
                // `section.key`, possibly with a value.
                let name = name.split(" = ").next().unwrap_or_default();
                let Some((section, key)) = name.split_once('.').filter(|(_, key)| is_key(key)) else { continue };
                let Some(keys) = sections.get(section).filter(|_| !section.is_empty()) else { continue };
                seen += 1;
                if !keys.contains(key) && !sections.contains_key(name) {
                    bad.push(format!("{}:{}: {name}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(seen > 50, "only {seen} keys found: the scan is broken");
    assert!(bad.is_empty(), "no such keys in {DEFAULTS}:\n{}", bad.join("\n"));
}

/// Each block of TOML that begins with a section of the configuration must contain only keys of its sections.
#[test]
fn keys_in_examples_exist() {
    let sections = sections();
    let (mut seen, mut bad) = (0, Vec::new());
    for (path, text) in documents() {
        for block in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            let mut section: Option<&BTreeSet<String>> = None;
            for line in block.lines() {
                if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
                    section = sections.get(name).filter(|keys| !keys.iter().any(|key| key.starts_with('"')));
                } else if let (Some(keys), Some((key, _))) = (section, line.split_once(" = ")) {
                    seen += 1;
                    if !line.starts_with('#') && !keys.contains(key) {
                        bad.push(format!("{}: {line}", path.display()));
                    }
                }
            }
        }
    }
    assert!(seen > 3, "only {seen} keys found: the scan is broken");
    assert!(bad.is_empty(), "no such keys in {DEFAULTS}:\n{}", bad.join("\n"));
}

/// Returns the anchor that a renderer makes of a heading: lower case, spaces to hyphens, without punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn linked_headings_exist() {
    let documents = documents();
    let headings: BTreeMap<PathBuf, BTreeSet<String>> = documents
        .iter()
        .map(|(path, text)| {
            let headings = prose(text).filter_map(|(_, line)| line.strip_prefix('#'));
            (path.clone(), headings.map(|line| anchor(line.trim_start_matches('#'))).collect())
        })
        .collect();
    let (mut seen, mut bad) = (0, Vec::new());
    for (path, text) in &documents {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((file, wanted)) = target.split_once('#').filter(|_| !target.contains("://")) else { continue };
            let document = match file {
                "" => path.clone(),
                file => PathBuf::from(
                    path.parent().expect("a directory").join(file).to_string_lossy().replace("docs/../", ""),
                ),
            };
            seen += 1;
            if headings.get(&document).is_some_and(|headings| !headings.contains(wanted)) {
                bad.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(seen > 10, "only {seen} links found: the scan is broken");
    assert!(bad.is_empty(), "no such headings:\n{}", bad.join("\n"));
}

/// Returns the text of all programs with string literals as they are printed: continued lines joined, escapes undone.
fn program_text() -> String {
    let mut all = String::new();
    for source in rust_sources().iter().filter(|source| !source.is_test()) {
        let mut rest = source.text.as_str();
        while let Some((line, after)) = rest.split_once("\\\n") {
            all.push_str(line);
            rest = after.trim_start();
        }
        all.push_str(rest);
        all.push('\n');
    }
    all.replace("\\\"", "\"")
}

#[test]
fn quoted_messages_are_in_the_source() {
    let (document, source) = (read(TROUBLESHOOTING), program_text());
    let (mut seen, mut bad, mut in_table) = (0, Vec::new(), false);
    for (number, line) in prose(&document) {
        let first = line.strip_prefix("| ").and_then(|rest| rest.split(" | ").next());
        in_table = first.is_some_and(|cell| in_table || cell == "message") || (in_table && line.starts_with("|--"));
        let Some(cell) = first.filter(|cell| in_table && *cell != "message") else { continue };
        // A message may itself contain backquotes: a cell that is quoted as a whole is one message.
        let whole = cell.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
        let messages: Vec<&str> = match whole {
            Some(message) if !message.contains("`: `") => vec![message],
            _ => quoted(cell).collect(),
        };
        for part in messages.iter().flat_map(|message| message.split('…')) {
            let part = part.trim_matches('"');
            if part.trim().len() >= PART_MIN {
                seen += 1;
                if !source.contains(part) {
                    bad.push(format!("{TROUBLESHOOTING}:{}: {part:?}", number + 1));
                }
            }
        }
    }
    assert!(seen > 50, "only {seen} messages found: the scan is broken");
    assert!(bad.is_empty(), "not in the source of any program:\n{}", bad.join("\n"));
}
