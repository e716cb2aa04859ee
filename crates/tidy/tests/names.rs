//! No bags: a module is named for its subject.

use tidy::{rust_sources, tracked_files};

const BAGS: [&str; 8] = ["utils", "util", "common", "helpers", "helper", "misc", "manager", "core_utils"];

#[test]
fn no_file_or_directory_is_a_bag() {
    let bad: Vec<_> = tracked_files()
        .into_iter()
        .filter(|path| path.with_extension("").iter().any(|part| BAGS.iter().any(|bag| part == *bag)))
        .map(|path| path.display().to_string())
        .collect();
    assert!(bad.is_empty(), "name these for what they hold:\n{}", bad.join("\n"));
}

#[test]
fn no_module_is_a_bag() {
    let mut bad = Vec::new();
    for source in rust_sources() {
        for (number, line) in source.text.lines().enumerate() {
            let line = line.trim_start().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
            if let Some(name) = line.strip_prefix("mod ").map(|rest| rest.trim_end_matches([';', '{', ' ']))
                && BAGS.contains(&name)
            {
                bad.push(format!("{}:{}: mod {name}", source.path.display(), number + 1));
            }
        }
    }
    assert!(bad.is_empty(), "name these for what they hold:\n{}", bad.join("\n"));
}
