//! Annotations `run.oci.hooks.stdout` and `run.oci.hooks.stderr`, crun's: files that hooks write to.

use std::{collections::BTreeMap, fs::OpenOptions, os::fd::OwnedFd, os::unix::fs::OpenOptionsExt, path::Path};

use container::hooks::{Hooks, Output};

use crate::{failure::Failure, state::Record};

const STDOUT: &str = "run.oci.hooks.stdout";
const STDERR: &str = "run.oci.hooks.stderr";

/// Opens them, and makes them where they are absent; relative paths are the current directory's.
pub(crate) fn open(annotations: &BTreeMap<String, String>) -> Result<Output, Failure> {
    open_in(Path::new(""), annotations)
}

/// The container's hooks, if it has any; relative paths are its bundle's.
pub(crate) fn hooks(record: &Record) -> Result<Option<Hooks>, Failure> {
    let Some(hooks) = record.hooks.as_ref().map(Hooks::parse).transpose()? else { return Ok(None) };
    Ok(Some(hooks.with_output(open_in(Path::new(&record.bundle), &record.annotations)?)))
}

fn open_in(directory: &Path, annotations: &BTreeMap<String, String>) -> Result<Output, Failure> {
    let open = |annotation: &str| -> Result<Option<OwnedFd>, Failure> {
        let Some(path) = annotations.get(annotation) else { return Ok(None) };
        let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(directory.join(path));
        opened
            .map(|file| Some(file.into()))
            .map_err(|error| Failure::io(format!("open {path:?} of the annotation {annotation}"), error))
    };
    Ok(Output { stdout: open(STDOUT)?, stderr: open(STDERR)? })
}
