use std::collections::{BTreeMap, BTreeSet};

use crate::{Source, rust_sources};

/// Path of a module relative to the root of its crate. Empty for the root itself.
pub type ModulePath = Vec<String>;

/// Modules of one directory of a crate that depend on each other in a cycle.
#[derive(Debug)]
pub struct Cycle {
    /// Crate and directory, such as `pod` or `pod::sandbox`.
    pub place: String,
    /// Sorted names of the modules.
    pub members: Vec<String>,
    /// Dependencies among the modules, such as `attach::leave → detach::Links`.
    pub uses: Vec<String>,
}

/// Finds the cycles among the modules of every crate under `crates/`, without tests. A module includes all modules
/// below it; a parent and its child may use each other.
pub fn cycles() -> Vec<Cycle> {
    let mut crates: BTreeMap<String, BTreeMap<ModulePath, String>> = BTreeMap::new();
    for source in rust_sources().iter().filter(|source| source.path.starts_with("crates") && !source.is_test()) {
        if let Some(path) = module_path(source) {
            crates.entry(source.crate_name().to_owned()).or_default().insert(path, code(&source.text));
        }
    }
    crates.iter().flat_map(|(name, modules)| Graph::of(modules).cycles(name)).collect()
}

/// Returns the module path of a file: `[exec, run]` for `crates/pod/src/exec/run.rs`, `None` outside `src`.
fn module_path(source: &Source) -> Option<ModulePath> {
    let mut parts: ModulePath =
        source.path.with_extension("").iter().skip(2).map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.first().is_none_or(|first| first != "src") {
        return None;
    }
    parts.remove(0);
    parts.pop_if(|last| ["lib", "main", "mod"].contains(&last.as_str()));
    Some(parts)
}

/// Removes comments and the unit tests, which are at the end of a file by convention.
fn code(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// Dependencies between the modules of a crate: each arrow leads from a module to one that it uses.
struct Graph {
    arrows: BTreeSet<(ModulePath, ModulePath)>,
}

/// A path in code: the module that it starts from and the segments below that module.
type Reference = (ModulePath, Vec<String>);

impl Graph {
    fn of(modules: &BTreeMap<ModulePath, String>) -> Self {
        let mut exports: BTreeMap<(ModulePath, String), Reference> = BTreeMap::new();
        for (module, text) in modules {
            for (path, is_export) in references(text) {
                if let Some(reference) = start(modules, module, &path)
                    && is_export
                    && let Some(name) = exported_name(&path)
                {
                    exports.insert((module.clone(), name), reference);
                }
            }
        }
        let mut arrows = BTreeSet::new();
        for (module, text) in modules {
            for (path, _) in references(text) {
                let target = start(modules, module, &path).map(|reference| resolve(modules, &exports, reference, 8));
                arrows.extend(target.filter(|target| target != module).map(|target| (module.clone(), target)));
            }
        }
        Self { arrows }
    }

    fn cycles(&self, name: &str) -> Vec<Cycle> {
        let mut levels: BTreeMap<&[String], Vec<(&ModulePath, &ModulePath)>> = BTreeMap::new();
        for (from, to) in &self.arrows {
            let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
            if shared < from.len().min(to.len()) {
                levels.entry(&from[..shared]).or_default().push((from, to));
            }
        }
        levels.into_iter().flat_map(|(level, arrows)| level_cycles(name, level, &arrows)).collect()
    }
}

/// Finds the cycles among the modules of one directory.
fn level_cycles(name: &str, level: &[String], arrows: &[(&ModulePath, &ModulePath)]) -> Vec<Cycle> {
    let depth = level.len();
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in arrows {
        next.entry(&from[depth]).or_default().insert(&to[depth]);
    }
    let all: BTreeMap<&str, BTreeSet<&str>> = next.keys().map(|module| (*module, reachable(&next, module))).collect();
    let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
    for (module, reachable) in all.iter().filter(|(module, reachable)| reachable.contains(**module)) {
        let mutual = |other: &&&str| all.get(**other).is_some_and(|back| back.contains(module));
        groups.insert(reachable.iter().filter(mutual).map(|other| (*other).to_owned()).collect());
    }
    let place = std::iter::once(name).chain(level.iter().map(String::as_str)).collect::<Vec<_>>().join("::");
    let uses = |members: &[String]| {
        let inside =
            |(from, to): &&(&ModulePath, &ModulePath)| members.contains(&from[depth]) && members.contains(&to[depth]);
        arrows.iter().filter(inside).map(|(from, to)| format!("{} → {}", from.join("::"), to.join("::"))).collect()
    };
    groups.into_iter().map(|members| Cycle { place: place.clone(), uses: uses(&members), members }).collect()
}

/// Returns every module that can be reached over one or more arrows.
fn reachable<'a>(next: &BTreeMap<&str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut pending: Vec<&'a str> = next.get(from).into_iter().flatten().copied().collect();
    while let Some(module) = pending.pop() {
        if seen.insert(module) {
            pending.extend(next.get(module).into_iter().flatten().copied());
        }
    }
    seen
}

/// Lists every path of a `use` and every path in code that starts at `crate` or `super`. The flag is set for
/// re-exports.
fn references(text: &str) -> Vec<(String, bool)> {
    let mut paths = Vec::new();
    let mut rest = String::new();
    for statement in text.split_inclusive(';') {
        let head = statement.rfind("use ").filter(|at| {
            statement[..*at].trim_end().ends_with(['}', ']', ')', ';', '\n']) || is_visibility(&statement[..*at])
        });
        match head {
            Some(at) if statement.ends_with(';') => {
                let is_export =
                    statement[..at].trim_end().ends_with("pub") || statement[..at].trim_end().ends_with(')');
                let tree = statement[at + 4..].trim_end_matches(';');
                paths.extend(expand(tree).into_iter().map(|path| (path, is_export)));
                rest.push_str(&statement[..at]);
            }
            _ => rest.push_str(statement),
        }
    }
    for start in ["crate::", "super::"] {
        for (at, _) in rest.match_indices(start) {
            let preceded =
                rest[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == ':');
            if !preceded {
                let path: String =
                    rest[at..].chars().take_while(|c| c.is_alphanumeric() || "_:".contains(*c)).collect();
                paths.push((path.trim_end_matches(':').to_owned(), false));
            }
        }
    }
    paths
}

fn is_visibility(before: &str) -> bool {
    let last_line = before.rsplit('\n').next().unwrap_or("").trim();
    last_line.is_empty() || last_line.starts_with("pub")
}

/// Expands a use tree: `a::{b, c::d}` → `a::b`, `a::c::d`.
fn expand(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, inner)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let inner = inner.strip_suffix('}').unwrap_or(inner);
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[from..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(expand).map(|path| format!("{prefix}{path}")).collect()
}

fn exported_name(path: &str) -> Option<String> {
    let name = path.split(" as ").last()?.rsplit("::").next()?;
    Some(name.trim().to_owned())
}

/// Returns the module where a path starts and the remaining segments, or `None` if the path leads to another crate.
fn start(modules: &BTreeMap<ModulePath, String>, module: &ModulePath, path: &str) -> Option<Reference> {
    let path = path.split(" as ").next().unwrap_or(path);
    let mut segments: Vec<String> = path.split("::").map(|segment| segment.trim().to_owned()).collect();
    let mut base = module.clone();
    match segments.first().map(String::as_str)? {
        "crate" => {
            base.clear();
            segments.remove(0);
        }
        "self" => drop(segments.remove(0)),
        "super" => {
            while segments.first().is_some_and(|first| first == "super") {
                base.pop();
                segments.remove(0);
            }
        }
        first => {
            let mut child = base.clone();
            child.push(first.to_owned());
            modules.get(&child)?;
        }
    }
    Some((base, segments))
}

/// Returns the module that defines the item of the path. Follows at most `limit` re-exports.
fn resolve(
    modules: &BTreeMap<ModulePath, String>,
    exports: &BTreeMap<(ModulePath, String), Reference>,
    (mut module, segments): Reference,
    limit: u32,
) -> ModulePath {
    for segment in segments {
        let mut child = module.clone();
        child.push(segment.clone());
        if modules.contains_key(&child) {
            module = child;
            continue;
        }
        return match exports.get(&(module.clone(), segment)) {
            Some(reference) if limit > 0 => resolve(modules, exports, reference.clone(), limit - 1),
            _ => module,
        };
    }
    module
}
