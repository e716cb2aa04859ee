//! `pinion config import`: translates a configuration of another engine.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use config_import::{Engine, Finding, Import, Outcome, document};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use crate::{Failure, daemon::config::Config, output};

/// Arguments of `pinion config import`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The engine whose configuration is translated
    engine: EngineName,
    /// Its configuration file [default: /etc/containerd/config.toml, /etc/crio/crio.conf]
    file: Option<PathBuf>,
    /// Write the translated configuration to this file, which must not exist, instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// For CRI-O: directory of registries.conf, registries.conf.d and certs.d
    #[arg(long, value_name = "DIRECTORY", default_value = "/etc/containers")]
    containers_dir: PathBuf,
    /// Write no configuration and exit with code 3 if a key is not served or not known
    #[arg(long)]
    strict: bool,
}

/// Exit code of `--strict` if not all keys could be translated. 1 is any other failure, 2 are invalid arguments.
const INCOMPLETE: u8 = 3;

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum EngineName {
    Containerd,
    Crio,
}

impl From<EngineName> for Engine {
    fn from(name: EngineName) -> Self {
        match name {
            EngineName::Containerd => Self::Containerd,
            EngineName::Crio => Self::Crio,
        }
    }
}

/// Translates the file. The configuration is on standard output or in a file, the report on standard error; with
/// `--json` both are one object on standard output.
pub(super) fn run(args: &Args, json: bool) -> Result<(), Failure> {
    let engine = Engine::from(args.engine);
    let file = args.file.as_deref().unwrap_or(engine.default_file());
    let mut import = config_import::import(engine, file, &args.containers_dir)
        .map_err(|error| Failure::new(format!("import the configuration of {engine}: {error}")))?;
    let text = accepted(engine, &mut import)?;
    let is_refused = args.strict && !import.is_complete();
    let outcome = || if is_refused { Err(Failure::quiet(INCOMPLETE)) } else { Ok(()) };
    if let Some(output) = args.output.as_ref().filter(|_| !is_refused) {
        write(output, &text)?;
    }
    if json {
        output::json(&json!({
            "engine": engine.to_string(), "complete": import.is_complete(), "configuration": text, "files": import.files,
            "keys": import.findings.iter().map(shown).collect::<Vec<_>>(),
        }))?;
        return outcome();
    }
    if args.output.is_none() && !is_refused {
        output::line(text.trim_end())?;
    }
    eprint!("{}", report(engine, &import));
    if is_refused {
        eprintln!("nothing was written: not all keys were translated (--strict)");
    }
    outcome()
}

/// Returns the translated configuration. Values that Pinion does not accept become findings, and those of its defaults
/// are left out.
fn accepted(engine: Engine, import: &mut Import) -> Result<String, Failure> {
    let internal = |error: &dyn std::fmt::Display| Failure::new(format!("check the translated configuration: {error}"));
    let default = Config::parse("", "").map_err(|error| internal(&error))?;
    let has_value = |finding: &Finding| matches!(finding.outcome, Outcome::Translated { value: Some(_), .. });
    let mut order: Vec<usize> =
        (0..import.findings.len()).filter(|index| has_value(&import.findings[*index])).collect();
    // What others need is checked first.
    order.sort_by_key(|index| !is_required(&import.findings[*index]));
    for index in order {
        let required = required_by(&import.findings, index);
        let without = match required.is_empty() {
            true => default.clone(),
            false => Config::parse("pinion", &document(engine, &required)).map_err(|error| internal(&error))?,
        };
        let finding = &mut import.findings[index];
        let with = [required, vec![finding.clone()]].concat();
        match Config::parse("pinion", &document(engine, &with)) {
            Ok(config) if config == without => drop_value(finding),
            Ok(_) => {}
            Err(error) => finding.outcome = Outcome::Unserved(cause(&error.to_string())),
        }
    }
    let text = document(engine, &import.findings);
    Config::parse("the translated configuration", &text).map_err(|error| internal(&error))?;
    Ok(text)
}

/// Returns the handler and the key in its table, if that is where the value of a finding is.
fn handler_key(finding: &Finding) -> Option<(&str, &str)> {
    match &finding.outcome {
        Outcome::Translated { target, value: Some(_) } => match target.as_slice() {
            [table, handler, key] if table == "handlers" => Some((handler, key)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a handler is not valid without this key.
fn is_required(finding: &Finding) -> bool {
    matches!(handler_key(finding), Some((_, "binary")))
}

/// Returns what the handler of a finding needs to be valid.
fn required_by(findings: &[Finding], index: usize) -> Vec<Finding> {
    let Some((handler, _)) = handler_key(&findings[index]) else { return Vec::new() };
    let others = findings.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, finding)| finding);
    let of_handler = others.filter(|other| handler_key(other).is_some_and(|(name, _)| name == handler));
    of_handler.filter(|other| is_required(other)).take(1).cloned().collect()
}

fn drop_value(finding: &mut Finding) {
    if let Outcome::Translated { value, .. } = &mut finding.outcome {
        *value = None;
    }
}

/// Returns an error without the place in a text that nobody sees.
fn cause(error: &str) -> String {
    let causes = error.lines().map(|line| line.splitn(3, ':').nth(2).unwrap_or(line).trim().to_owned());
    causes.collect::<Vec<_>>().join("; ")
}

/// Writes a new file. It exists only once it is complete: a daemon may read its directory at any time.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(format!("write {}: {error}", path.display()));
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&partial);
    let written = written.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    let written = written.and_then(|()| Ok(renameat_with(CWD, &partial, CWD, path, RenameFlags::NOREPLACE)?));
    written.map_err(|error| {
        // The first error is the one to report.
        let _ = fs::remove_file(&partial);
        failed(error)
    })
}

fn shown(finding: &Finding) -> serde_json::Value {
    let (result, target, reason) = match &finding.outcome {
        Outcome::Translated { target, .. } => ("translated", Some(target.join(".")), None),
        Outcome::Same => ("same", None, None),
        Outcome::Unneeded(reason) => ("unneeded", None, Some(reason.as_str())),
        Outcome::Unserved(reason) => ("unserved", None, Some(reason.as_str())),
        Outcome::Unknown => ("unknown", None, None),
    };
    let (file, line) = finding.place.clone().unzip();
    json!({"key": finding.key, "file": file, "line": line, "result": result, "target": target, "reason": reason})
}

/// Returns the lines of the report: each key that is not served or unknown, and the number of the others.
fn report(engine: Engine, import: &Import) -> String {
    let mut lines = String::new();
    let (mut translated, mut same, mut unneeded) = (0, 0, 0);
    for finding in &import.findings {
        let text = match &finding.outcome {
            Outcome::Translated { .. } => {
                translated += usize::from(finding.place.is_some());
                continue;
            }
            Outcome::Same => {
                same += 1;
                continue;
            }
            Outcome::Unneeded(_) => {
                unneeded += 1;
                continue;
            }
            Outcome::Unserved(reason) => format!("not served: {reason}"),
            Outcome::Unknown => format!("not a key of the reference of {engine}: nothing was translated"),
        };
        let place = match &finding.place {
            Some((file, 0)) => format!("{}: ", file.display()),
            Some((file, line)) => format!("{}:{line}: ", file.display()),
            None => format!("default of {engine}: "),
        };
        lines.push_str(&format!("{place}{}: {text}\n", finding.key));
    }
    lines + &format!("{translated} keys translated, {same} the same without a key, {unneeded} not needed\n")
}

#[cfg(test)]
mod tests;
