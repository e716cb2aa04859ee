//! Files and functions stay small. The pain of every other runtime sits in one giant lifecycle function each.

use tidy::{functions, rust_sources};

const FILE_LINES: usize = 600;
const LIB_LINES: usize = 120;
const FUNCTION_LINES: usize = 100;
/// How many files may be longer than what we aim at.
const FILE_AIM: usize = 400;
/// How many functions may be longer than what we aim at (percent).
const FUNCTION_AIM: usize = 60;

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    for source in rust_sources() {
        let lines = source.text.lines().count();
        let most = if source.path.ends_with("src/lib.rs") { LIB_LINES } else { FILE_LINES };
        if lines > most {
            long.push(format!("{}: {lines} lines, at most {most}", source.path.display()));
        }
    }
    assert!(long.is_empty(), "look for the seam:\n{}", long.join("\n"));
}

#[test]
fn most_files_are_what_we_aim_at() {
    let sources = rust_sources();
    let long: Vec<_> = sources
        .iter()
        .filter(|s| !s.is_test() && s.text.lines().count() > FILE_AIM)
        .map(|s| s.path.display().to_string())
        .collect();
    assert!(
        long.len() * 20 <= sources.len(),
        "more than one file in twenty is over {FILE_AIM} lines:\n{}",
        long.join("\n")
    );
}

#[test]
fn functions_are_short() {
    let (mut all, mut over, mut long) = (0usize, Vec::new(), Vec::new());
    for source in rust_sources().iter().filter(|s| !s.is_test()) {
        for function in functions(source) {
            all += 1;
            let place =
                format!("{}:{}: {} has {} lines", source.path.display(), function.line, function.name, function.length);
            if function.length > FUNCTION_LINES {
                over.push(place);
            } else if function.length > FUNCTION_AIM {
                long.push(place);
            }
        }
    }
    assert!(all > 100, "only {all} functions found: the scan is broken");
    assert!(over.is_empty(), "at most {FUNCTION_LINES} lines; name the steps:\n{}", over.join("\n"));
    assert!(
        long.len() * 50 <= all,
        "more than one function in fifty is over {FUNCTION_AIM} lines:\n{}",
        long.join("\n")
    );
}
