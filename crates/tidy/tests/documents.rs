//! Checks that the documents match the repository: readers found a broken link, a crate without an entry in the code
//! map and two decisions with the same number.

use std::{collections::BTreeMap, fs, path::PathBuf};

use tidy::{tracked_files, workspace_root};

/// Reads every tracked document; returns paths and texts.
fn documents() -> Vec<(PathBuf, String)> {
    let paths = tracked_files().into_iter().filter(|path| path.extension().is_some_and(|end| end == "md"));
    paths.filter_map(|path| Some((path.clone(), fs::read_to_string(workspace_root().join(&path)).ok()?))).collect()
}

#[test]
fn links_are_not_broken() {
    let documents = documents();
    assert!(documents.len() > 10, "only {} documents found: the scan is broken", documents.len());
    let mut bad = Vec::new();
    for (path, text) in &documents {
        let directory = workspace_root().join(path).parent().expect("a directory").to_owned();
        for rest in text.split("](").skip(1) {
            let target = rest.split([')', '#']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !directory.join(target).exists() {
                bad.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(bad.is_empty(), "broken links:\n{}", bad.join("\n"));
}

#[test]
fn every_crate_is_in_the_code_map() {
    let map = fs::read_to_string(workspace_root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let entries = fs::read_dir(workspace_root().join("crates")).expect("crates");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    let missing: Vec<String> = names.filter(|name| !map.contains(&format!("\n| `{name}` | "))).collect();
    assert!(missing.is_empty(), "not in ARCHITECTURE.md's code map: {missing:?}");
}

#[test]
fn decisions_have_unique_numbers() {
    let mut numbers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in documents() {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.parent().is_some_and(|directory| directory.ends_with("docs/decisions")) {
            let number = name.split('-').next().unwrap_or_default().to_owned();
            assert!(text.starts_with(&format!("# {number}: ")), "{name}: the title has a different number");
            numbers.entry(number).or_default().push(name);
        }
    }
    let duplicates: Vec<_> = numbers.values().filter(|names| names.len() > 1).collect();
    assert!(!numbers.is_empty() && duplicates.is_empty(), "decisions with the same number: {duplicates:?}");
}
