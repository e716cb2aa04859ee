//! CRI-O's configuration: `crio.conf`, its drop-ins, and the files of registries that CRI-O shares with Podman.

mod handlers;
mod registries;
mod rules;

use std::path::{Path, PathBuf};

use toml::Value;

use crate::{
    Finding, Import, ImportError, Outcome, Rule,
    apply::apply,
    source::{self, Setting},
};

pub(crate) use registries::REGISTRIES;

/// Returns the rules of `crio.conf`.
pub(crate) fn rules() -> Vec<Rule> {
    [rules::ROOT, rules::RUNTIME, rules::HANDLERS, rules::OTHERS].concat()
}

/// Translates a file, its drop-ins (`<FILE>.d`), and `registries.conf` and `certs.d` of a directory.
pub(crate) fn import(file: &Path, containers: &Path) -> Result<Import, ImportError> {
    let mut import = Import::default();
    let mut settings = source::read(file)?;
    import.files.push(file.to_path_buf());
    let mut directory = file.as_os_str().to_owned();
    directory.push(".d");
    // CRI-O reads every file of the directory, whatever its name.
    for path in source::list(Path::new(&directory), |name| !name.starts_with('.'))? {
        settings.extend(source::read(&path)?);
        import.files.push(path);
    }
    source::check_count(&import.files)?;
    let default = default_handler(&settings);
    let handlers = handlers::take(&mut settings, &default);
    import.findings = apply(settings, &rules());
    import.findings.extend(handlers);
    registries::import(containers, &mut import)?;
    import.findings.extend(certificates(containers)?);
    Ok(import)
}

/// Returns the name of the default runtime handler.
fn default_handler(settings: &[Setting]) -> String {
    let is_default = |setting: &&Setting| setting.path == ["crio", "runtime", "default_runtime"];
    let set = settings.iter().rev().find(is_default).and_then(|setting| setting.value.as_str());
    set.filter(|name| !name.is_empty()).unwrap_or("crun").to_owned()
}

/// Returns a finding for the certificates of registries, which Pinion reads in the same layout, if there are any.
fn certificates(containers: &Path) -> Result<Option<Finding>, ImportError> {
    let directory: PathBuf = containers.join("certs.d");
    if source::list(&directory, |_| true)?.is_empty() {
        return Ok(None);
    }
    let target = ["registries", "config_dir"].map(str::to_owned).to_vec();
    let Some(path) = directory.to_str().map(|path| Value::String(path.to_owned())) else { return Ok(None) };
    let outcome = Outcome::Translated { target, value: Some(path) };
    Ok(Some(Finding { key: "certs.d".to_owned(), place: Some((directory, 0)), outcome }))
}

#[cfg(test)]
mod tests;
