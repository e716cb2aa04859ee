//! What the documents say of the repository is there: a link to nowhere, a crate that is on no map and a decision that
//! shares its number with another were all found by a reader.

use std::{collections::BTreeMap, fs, path::PathBuf};

use tidy::{tracked_files, workspace_root};

/// Path and text of every document that is tracked.
fn documents() -> Vec<(PathBuf, String)> {
    let paths = tracked_files().into_iter().filter(|path| path.extension().is_some_and(|end| end == "md"));
    paths.filter_map(|path| Some((path.clone(), fs::read_to_string(workspace_root().join(&path)).ok()?))).collect()
}

#[test]
fn links_lead_somewhere() {
    let documents = documents();
    assert!(documents.len() > 10, "the documents are found");
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
    assert!(bad.is_empty(), "links to nowhere:\n{}", bad.join("\n"));
}

#[test]
fn every_crate_is_on_the_map() {
    let map = fs::read_to_string(workspace_root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let entries = fs::read_dir(workspace_root().join("crates")).expect("crates");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    let missing: Vec<String> = names.filter(|name| !map.contains(&format!("\n| `{name}` | "))).collect();
    assert!(missing.is_empty(), "not in ARCHITECTURE.md's code map: {missing:?}");
}

#[test]
fn decisions_have_numbers_of_their_own() {
    let mut numbers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in documents() {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.parent().is_some_and(|directory| directory.ends_with("docs/decisions")) {
            let number = name.split('-').next().unwrap_or_default().to_owned();
            assert!(text.starts_with(&format!("# {number}: ")), "{name}: its title has another number");
            numbers.entry(number).or_default().push(name);
        }
    }
    let twice: Vec<_> = numbers.values().filter(|names| names.len() > 1).collect();
    assert!(!numbers.is_empty() && twice.is_empty(), "one number for several: {twice:?}");
}
