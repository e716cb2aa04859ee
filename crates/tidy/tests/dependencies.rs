//! Checks licences and duplicate versions of dependencies against `deny.toml`. cargo-deny checks this and more, but
//! needs the network and is not installed everywhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use tidy::workspace_root;

/// Lists name, version and licence of every dependency that is built for Linux.
fn dependencies() -> Vec<(String, String, String)> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(workspace_root())
        .output()
        .expect("cargo metadata runs");
    assert!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&out.stdout).expect("cargo metadata is JSON");
    let built: BTreeSet<&str> = metadata["resolve"]["nodes"]
        .as_array()
        .expect("nodes")
        .iter()
        .map(|node| node["id"].as_str().expect("an id"))
        .collect();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().expect("packages").iter();
    let external = packages
        .filter(|package| !package["source"].is_null() && built.contains(package["id"].as_str().expect("an id")));
    external.map(|package| (text(&package["name"]), text(&package["version"]), text(&package["license"]))).collect()
}

/// Returns the strings of the list `key` in `deny.toml`.
fn deny_toml_list(key: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(workspace_root().join("deny.toml")).expect("deny.toml");
    let list = text.split_once(&format!("\n{key} = [")).and_then(|(_, rest)| rest.split_once("\n]")).expect("a list").0;
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether at least one alternative of an SPDX expression consists of allowed licences only. `/` is the old form of OR.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let all = |part: &str| {
        part.split(" AND ")
            .all(|part| part.trim_matches(['(', ')', ' ']).split(" OR ").any(|one| allowed.contains(one.trim())))
    };
    let expression = expression.replace(" / ", " OR ").replace('/', " OR ");
    match expression.contains(" AND ") {
        true => all(&expression),
        false => expression.split(" OR ").any(|one| allowed.contains(one.trim())),
    }
}

#[test]
fn licences_are_allowed() {
    let allowed = deny_toml_list("allow");
    let dependencies = dependencies();
    assert!(dependencies.len() > 100, "only {} dependencies found: the scan is broken", dependencies.len());
    let wrong = dependencies.iter().filter(|(_, _, licence)| !is_allowed(licence, &allowed));
    let wrong: Vec<_> = wrong.map(|(name, version, licence)| format!("{name} {version}: {licence:?}")).collect();
    assert!(wrong.is_empty(), "not in deny.toml:\n{}", wrong.join("\n"));
}

#[test]
fn licence_expressions_are_parsed() {
    let allowed = BTreeSet::from(["MIT", "ISC"].map(str::to_owned));
    for expression in ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "ISC AND (GPL-3.0 OR MIT)"] {
        assert!(is_allowed(expression, &allowed), "{expression}");
    }
    for expression in ["", "GPL-3.0", "MIT AND GPL-3.0", "ISC AND (GPL-3.0 OR Zlib)"] {
        assert!(!is_allowed(expression, &allowed), "{expression}");
    }
}

#[test]
fn crates_have_one_version() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, version, _) in dependencies() {
        versions.entry(name).or_default().insert(version);
    }
    let several: BTreeSet<String> =
        versions.into_iter().filter(|(_, all)| all.len() > 1).map(|(name, _)| name).collect();
    assert_eq!(several, deny_toml_list("skip"), "left: crates in several versions; right: `skip` in deny.toml");
}
