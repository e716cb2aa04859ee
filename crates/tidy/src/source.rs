use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// One Rust file of the workspace.
#[derive(Debug)]
pub struct Source {
    /// Path from the workspace's root.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

impl Source {
    /// Whether it is test code: under `tests/`, `benches/`, `fuzz/`, or a `tests.rs` beside its subject.
    pub fn is_test(&self) -> bool {
        let directory =
            self.path.components().any(|c| ["tests", "benches", "fuzz"].iter().any(|name| c.as_os_str() == *name));
        directory || self.path.file_name().is_some_and(|name| name == "tests.rs")
    }

    /// The crate it belongs to (`crates/<name>/…`).
    pub fn crate_name(&self) -> &str {
        self.path.iter().nth(1).and_then(|name| name.to_str()).unwrap_or("")
    }
}

/// The directory that holds the workspace's `Cargo.toml`.
pub fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/tidy lies two below the root").to_path_buf()
}

/// Every file that git tracks or would track, from the root.
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

/// Every Rust file under `crates/`.
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
