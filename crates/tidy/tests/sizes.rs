//! Checks that files and functions stay small: the hardest code to maintain in other runtimes is one giant lifecycle
//! function each.

use tidy::{functions, rust_sources};

/// Maximum lines of a file.
const FILE_LINES: usize = 600;
/// Maximum lines of a `lib.rs`.
const LIB_LINES: usize = 120;
/// Maximum lines of a function.
const FUNCTION_LINES: usize = 100;
/// Lines of a file that only one file in twenty may exceed.
const FILE_AIM: usize = 400;
/// Lines of a function that only one function in fifty may exceed.
const FUNCTION_AIM: usize = 60;

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    for source in rust_sources() {
        let lines = source.text.lines().count();
        let limit = if source.path.ends_with("src/lib.rs") { LIB_LINES } else { FILE_LINES };
        if lines > limit {
            long.push(format!("{}: {lines} lines, at most {limit}", source.path.display()));
        }
    }
    assert!(long.is_empty(), "split these files:\n{}", long.join("\n"));
}

#[test]
fn most_files_have_the_length_we_aim_at() {
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
    assert!(over.is_empty(), "at most {FUNCTION_LINES} lines; split into named steps:\n{}", over.join("\n"));
    assert!(
        long.len() * 50 <= all,
        "more than one function in fifty is over {FUNCTION_AIM} lines:\n{}",
        long.join("\n")
    );
}
