//! Checks for words that this repository once used and that engineers of the field stumble over. One word has one
//! meaning; `docs/style.md` has the glossary.

use std::{fs, path::Path};

use tidy::{tracked_files, workspace_root};

/// Word or phrase in lower case → what to write instead. Parts of identifiers count as words: `open_folder`,
/// `OpenFolder`. Names in formats that earlier versions wrote stay, as `serde(rename)`.
const WORDS: [(&str, &str); 37] = [
    ("folder", "directory"),
    ("folders", "directories"),
    ("told", "reported, sent, logged"),
    ("tell", "report, send, log"),
    ("tells", "reports, sends, logs"),
    ("said", "reported, logged"),
    ("heard", "received"),
    ("hears", "receives"),
    ("asked", "requested"),
    ("mend", "fix"),
    ("mended", "fixed"),
    ("mends", "fixes"),
    ("anew", "again, from scratch"),
    ("meanwhile", "in the meantime, while …"),
    ("beside", "next to, alongside"),
    ("forerunner", "intermediate process"),
    ("nascent", "container setup"),
    ("glance", "summary"),
    ("glances", "summaries"),
    ("birth", "creation, start"),
    ("born", "created, started"),
    ("whoever", "a process that, a caller that"),
    ("figures", "metrics, counters, measurements, statistics"),
    ("for ever", "forever"),
    ("any more", "anymore, any longer"),
    ("go on", "continue"),
    ("goes on", "continues"),
    ("went on", "continued"),
    ("takes away", "removes"),
    ("take away", "remove"),
    ("takes back", "rolls back, undoes"),
    ("take back", "roll back, undo"),
    ("has none", "does not have one, has no …"),
    ("is no", "is not a"),
    ("are no", "are not"),
    ("was no", "was not a"),
    ("were no", "were not"),
];

/// Phrases that contain one of these words and are fine.
const ALLOWED: [&str; 4] = [" there is no ", " there are no ", " there was no ", " there were no "];

/// Files that may contain these words: this one, the protocol of Kubernetes, the glossary and the text of the licence.
const EXEMPT: [&str; 4] =
    ["crates/tidy/tests/vocabulary.rs", "crates/cri-proto/proto/cri-v1.proto", "docs/style.md", "LICENSE"];
/// Extensions of the files that are checked. A file without extension counts as `sh`.
const EXTENSIONS: [&str; 9] = ["rs", "md", "toml", "py", "sh", "proto", "service", "socket", "yaml"];

#[test]
fn the_words_are_those_of_the_field() {
    let mut bad = Vec::new();
    for path in tracked_files() {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("sh");
        if EXEMPT.iter().any(|exempt| path == Path::new(exempt)) || !EXTENSIONS.contains(&extension) {
            continue;
        }
        let Ok(text) = fs::read_to_string(workspace_root().join(&path)) else { continue };
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().starts_with("#[serde(rename = "));
        for (number, line) in lines {
            let words = ALLOWED.iter().fold(words_of(line), |words, allowed| words.replace(allowed, " "));
            let matches = WORDS.iter().filter(|(word, _)| words.contains(&format!(" {word} ")));
            bad.extend(matches.map(|(word, instead)| format!("{}:{}: {word}: {instead}", path.display(), number + 1)));
        }
    }
    assert!(bad.is_empty(), "{} words to replace:\n{}", bad.len(), bad.join("\n"));
}

/// Returns the words of a line in lower case with a blank on each side: `openFolder(a_b)` → ` open folder a b `.
fn words_of(line: &str) -> String {
    let mut words = String::from(" ");
    let mut previous = ' ';
    for c in line.chars() {
        let starts_word = c.is_uppercase() && previous.is_lowercase();
        if (starts_word || !c.is_alphanumeric()) && !words.ends_with(' ') {
            words.push(' ');
        }
        if c.is_alphanumeric() {
            words.extend(c.to_lowercase());
        }
        previous = c;
    }
    if !words.ends_with(' ') {
        words.push(' ');
    }
    words
}

#[test]
fn text_and_identifiers_are_split_into_words() {
    assert_eq!(
        words_of("fn open_folder(anOpenFolder: X) // is no, file"),
        " fn open folder an open folder x is no file "
    );
    assert_eq!(words_of(""), " ");
}
