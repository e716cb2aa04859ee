//! Checks that the crates for other programs can be published. `cargo publish --dry-run -p pinion-syscall -p pinion-netns`
//! checks this and more, but needs the network.

use std::{fs, path::Path, process::Command};

use serde_json::Value;
use tidy::workspace_root;

/// The packages for other programs, and the names of their libraries.
const PUBLISHED: [(&str, &str); 2] = [("pinion-netns", "netns"), ("pinion-syscall", "syscall")];
/// Most keywords and categories that crates.io accepts.
const TERMS_MAX: usize = 5;

fn packages() -> Vec<Value> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(workspace_root())
        .output()
        .expect("cargo metadata runs");
    assert!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout).expect("cargo metadata is JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

/// An empty list of registries is `publish = false`.
fn is_published(package: &Value) -> bool {
    package["publish"].as_array().is_none_or(|registries| !registries.is_empty())
}

#[test]
fn only_the_libraries_for_other_programs_are_published() {
    let packages = packages();
    let mut published: Vec<&str> =
        packages.iter().filter(|it| is_published(it)).filter_map(|it| it["name"].as_str()).collect();
    published.sort_unstable();
    assert_eq!(published, PUBLISHED.map(|(name, _)| name));
}

#[test]
fn published_crates_are_described() {
    for package in packages().iter().filter(|package| is_published(package)) {
        let name = package["name"].as_str().expect("a name");
        for field in ["description", "license", "repository", "readme", "rust_version"] {
            assert!(package[field].as_str().is_some_and(|text| !text.is_empty()), "{name}: {field} is missing");
        }
        for field in ["keywords", "categories"] {
            let terms = package[field].as_array().expect("a list");
            assert!((1..=TERMS_MAX).contains(&terms.len()), "{name}: {field}: {terms:?}");
            let is_valid = |term: &str| term.len() <= 20 || field == "categories";
            assert!(terms.iter().all(|term| term.as_str().is_some_and(is_valid)), "{name}: {field}: {terms:?}");
        }
        let library = package["targets"].as_array().expect("targets").iter().find(|target| target["kind"][0] == "lib");
        let library = library.expect("a library");
        let expected = PUBLISHED.iter().find(|(package, _)| *package == name).map(|(_, library)| *library);
        assert_eq!(library["name"].as_str(), expected);
        let source = fs::read_to_string(library["src_path"].as_str().expect("a path")).expect("lib.rs");
        assert!(source.contains("#![warn(missing_docs)]"), "{name}: lib.rs does not require documentation");
    }
}

/// A dependency in the workspace needs the version with which it is published, and must be published, too.
#[test]
fn published_crates_depend_on_published_versions() {
    let packages = packages();
    for package in packages.iter().filter(|package| is_published(package)) {
        let name = package["name"].as_str().expect("a name");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let on = packages.iter().find(|it| it["name"] == dependency["name"] && !dependency["path"].is_null());
            // cargo leaves out what only tests need, if it has no version.
            let Some(on) = on.filter(|_| dependency["kind"] != "dev") else { continue };
            let version = format!("^{}", on["version"].as_str().expect("a version"));
            assert!(is_published(on), "{name} depends on {}, which is not published", dependency["name"]);
            assert_eq!(dependency["req"].as_str(), Some(version.as_str()), "{name} → {}", dependency["name"]);
        }
    }
}

#[test]
fn the_changelog_has_the_version() {
    let packages = packages();
    let package = packages.iter().find(|package| package["name"] == "pinion-netns").expect("the package");
    let directory = Path::new(package["manifest_path"].as_str().expect("a path")).parent().expect("a directory");
    let changelog = fs::read_to_string(directory.join("CHANGELOG.md")).expect("CHANGELOG.md");
    let version = package["version"].as_str().expect("a version");
    assert!(changelog.contains(&format!("\n## {version}")), "no section for {version}");
}

/// A clock that is set back must change nothing: the library measures time with the monotonic clock only.
#[test]
fn the_library_reads_no_wall_clock() {
    let sources = tidy::rust_sources();
    let library: Vec<_> = sources.iter().filter(|source| source.path.starts_with("crates/netns/src")).collect();
    assert!(library.len() > 10, "only {} files found: the scan is broken", library.len());
    let is_wall_clock = |line: &str| ["SystemTime", "Realtime", "REALTIME"].iter().any(|clock| line.contains(clock));
    let uses: Vec<_> =
        library.iter().filter(|source| source.text.lines().any(is_wall_clock)).map(|it| &it.path).collect();
    assert!(uses.is_empty(), "the wall clock is read in {uses:?}");
}
