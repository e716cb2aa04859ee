use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// One Rust file of the workspace.
#[derive(Debug)]
pub struct Source {
    /// Path relative to the root of the workspace.
    pub path: PathBuf,
    /// Content of the file.
    pub text: String,
}

impl Source {
    /// Whether the file is test code: under `tests/`, `benches/` or `fuzz/`, or a `tests.rs` next to the module it
    /// tests.
    pub fn is_test(&self) -> bool {
        let in_test_directory =
            self.path.components().any(|c| ["tests", "benches", "fuzz"].iter().any(|name| c.as_os_str() == *name));
        in_test_directory || self.path.file_name().is_some_and(|name| name == "tests.rs")
    }

    /// Name of the crate that the file belongs to (`crates/<name>/…`).
    pub fn crate_name(&self) -> &str {
        self.path.iter().nth(1).and_then(|name| name.to_str()).unwrap_or("")
    }
}

/// Returns the directory that holds the `Cargo.toml` of the workspace.
pub fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/tidy is two levels below the root")
        .to_path_buf()
}

/// Lists every file that git tracks or would track, relative to the root of the workspace.
pub fn tracked_files() -> Vec<PathBuf> {
    let out = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(workspace_root())
        .output()
        .expect("git lists the files of the checkout");
    assert!(out.status.success(), "git ls-files: {}", String::from_utf8_lossy(&out.stderr));
    let root = workspace_root();
    String::from_utf8(out.stdout)
        .expect("paths are UTF-8")
        .lines()
        .map(PathBuf::from)
        .filter(|path| root.join(path).is_file())
        .collect()
}

/// Reads every Rust file under `crates/` and `tests/`.
pub fn rust_sources() -> Vec<Source> {
    let root = workspace_root();
    let sources: Vec<Source> = tracked_files()
        .into_iter()
        .filter(|path| {
            (path.starts_with("crates") || path.starts_with("tests")) && path.extension().is_some_and(|e| e == "rs")
        })
        .map(|path| Source { text: fs::read_to_string(root.join(&path)).expect("a tracked file is readable"), path })
        .collect();
    assert!(sources.len() > 50, "only {} Rust files found: the walk is broken", sources.len());
    sources
}
