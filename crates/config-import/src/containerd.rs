//! containerd's configuration: versions 2 to 4, with `imports`.

mod base_spec;
mod handlers;
mod legacy;
mod plugin_rules;
mod server_rules;

use std::path::{Component, Path, PathBuf};

use toml::Value;

use crate::{
    Finding, Import, ImportError, Outcome, Rule,
    apply::apply,
    hosts,
    source::{self, Setting},
    wildcard,
};

/// Plugin with the settings of containers.
const RUNTIME: &str = "io.containerd.cri.v1.runtime";
/// Maximum depth of files that import each other.
const IMPORT_DEPTH_MAX: usize = 8;
/// Handler that is the default unless another is set.
const RUNC: &str = "runc";

/// Returns the rules of `config.toml`.
pub(crate) fn rules() -> Vec<Rule> {
    [server_rules::RULES, plugin_rules::IMAGES, plugin_rules::RUNTIME, plugin_rules::OTHERS].concat()
}

/// Translates a file and its imports.
pub(crate) fn import(file: &Path) -> Result<Import, ImportError> {
    let mut import = Import::default();
    let mut settings = Vec::new();
    read(file, 0, &mut import.files, &mut settings)?;
    let default = default_handler(&settings);
    let handlers = handlers::take(&mut settings, &default);
    let base_spec = base_spec::take(&mut settings);
    import.findings = apply(settings, &rules());
    import.findings.extend(base_spec);
    import.findings.extend(handlers);
    if let Some(driver) = implied_driver(&import.findings) {
        import.findings.push(driver);
    }
    for directory in host_directories(&import.findings) {
        hosts::check(&directory, &mut import)?;
    }
    Ok(import)
}

/// Reads a file, and after it its imports, which override it.
fn read(file: &Path, depth: usize, files: &mut Vec<PathBuf>, settings: &mut Vec<Setting>) -> Result<(), ImportError> {
    if files.iter().any(|read| read == file) {
        return Ok(());
    }
    let mut own = source::read(file)?;
    files.push(file.to_path_buf());
    source::check_count(files)?;
    let invalid =
        |line: usize, cause: &str| ImportError::Invalid { path: file.to_path_buf(), line, cause: cause.to_owned() };
    let version = own.iter().find(|setting| setting.path == ["version"]);
    match version.map(|setting| (setting.line, setting.value.as_integer())) {
        Some((_, Some(2))) => own.iter_mut().for_each(legacy::modernize),
        Some((_, Some(3..=4))) => {}
        Some((line, _)) => return Err(invalid(line, "version: only 2, 3 and 4 are read")),
        // A file without a version is of version 1, except for those that other files import.
        None if depth > 0 => {}
        None => return Err(invalid(0, "no version, as in version 1; run `containerd config migrate` first")),
    }
    let imports = own.iter().find(|setting| setting.path == ["imports"]).cloned();
    settings.extend(own);
    let Some(imports) = imports else { return Ok(()) };
    if depth == IMPORT_DEPTH_MAX {
        return Err(imports.invalid("imports are nested too deeply"));
    }
    for pattern in imports.value.as_array().into_iter().flatten() {
        let pattern = pattern.as_str().ok_or_else(|| imports.invalid("imports: not a list of strings"))?;
        for path in imported(file, pattern, &imports)? {
            read(&path, depth + 1, files, settings)?;
        }
    }
    Ok(())
}

/// Lists the files of an import: a path or a pattern, relative to the directory of the file.
fn imported(file: &Path, pattern: &str, imports: &Setting) -> Result<Vec<PathBuf>, ImportError> {
    let path = cleaned(&file.parent().unwrap_or(Path::new("/")).join(pattern));
    let (Some(directory), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(imports.invalid(format!("imports: {pattern:?} does not name a file")));
    };
    if pattern.contains('[') || directory.to_string_lossy().contains(['*', '?']) {
        return Err(imports.invalid(format!("imports: {pattern:?}: only * and ? in the name of the file are possible")));
    }
    match name.contains(['*', '?']) {
        true => source::list(directory, |entry| wildcard::matches(name, entry)),
        false => Ok(vec![path.clone()]),
    }
}

/// Removes `..` from a path as containerd does, so that a file that imports itself by another path is recognised.
fn cleaned(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(cleaned.pop()),
            component => cleaned.push(component),
        }
    }
    cleaned
}

/// Returns the name of the default runtime handler.
fn default_handler(settings: &[Setting]) -> String {
    let is_default = |setting: &&Setting| setting.path == ["plugins", RUNTIME, "containerd", "default_runtime_name"];
    let set = settings.iter().rev().find(is_default).and_then(|setting| setting.value.as_str());
    set.filter(|name| !name.is_empty()).unwrap_or(RUNC).to_owned()
}

/// Returns the cgroup driver of a configuration that does not set one.
fn implied_driver(findings: &[Finding]) -> Option<Finding> {
    let target = ["cgroup", "driver"].map(str::to_owned).to_vec();
    let is_set = |outcome: &Outcome| matches!(outcome, Outcome::Translated { target: set, .. } if *set == target);
    let value = Some(Value::String("cgroupfs".to_owned()));
    let key = "SystemdCgroup".to_owned();
    (!findings.iter().any(|finding| is_set(&finding.outcome))).then_some(Finding {
        key,
        place: None,
        outcome: Outcome::Translated { target, value },
    })
}

/// Returns the directories of registries that are set.
fn host_directories(findings: &[Finding]) -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> = findings
        .iter()
        .filter_map(|finding| match &finding.outcome {
            Outcome::Translated { target, value: Some(Value::String(path)) }
                if *target == ["registries", "config_dir"] =>
            {
                Some(PathBuf::from(path))
            }
            _ => None,
        })
        .collect();
    directories.dedup();
    directories
}

#[cfg(test)]
mod tests;
