//! crun's annotations `run.oci.hooks.stdout` and `run.oci.hooks.stderr`: the files to which hooks write.

use std::{collections::BTreeMap, fs::OpenOptions, os::fd::OwnedFd, os::unix::fs::OpenOptionsExt, path::Path};

use container::hooks::{Hooks, Output};
use rustix::fs::OFlags;

use crate::{failure::Failure, state::Record};

const STDOUT: &str = "run.oci.hooks.stdout";
const STDERR: &str = "run.oci.hooks.stderr";

/// Opens the output files if the spec has hooks, and creates those that do not exist. Paths are relative to the current
/// directory.
pub(crate) fn open(spec: &oci::Spec) -> Result<Output, Failure> {
    match spec.hooks {
        Some(_) => open_in(Path::new(""), &spec.annotations),
        None => Ok(Output::default()),
    }
}

/// Returns the container's hooks, if it has any. Paths of their output files are relative to its bundle.
pub(crate) fn hooks(record: &Record) -> Result<Option<Hooks>, Failure> {
    let Some(hooks) = record.hooks.as_ref().map(Hooks::parse).transpose()? else { return Ok(None) };
    Ok(Some(hooks.with_output(open_in(Path::new(&record.bundle), &record.annotations)?)))
}

fn open_in(directory: &Path, annotations: &BTreeMap<String, String>) -> Result<Output, Failure> {
    let open = |annotation: &str| -> Result<Option<OwnedFd>, Failure> {
        let Some(path) = annotations.get(annotation) else { return Ok(None) };
        // An engine may have copied the annotation from a user: do not follow a symlink, and do not block in open.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(flags);
        let failed = |error| Failure::io(format!("open {path:?} of the annotation {annotation}"), error);
        let file = options.open(directory.join(path)).map_err(failed)?;
        match file.metadata().map_err(failed)?.is_file() {
            true => Ok(Some(file.into())),
            false => Err(Failure::new(format!("open {path:?} of the annotation {annotation}: not a regular file"))),
        }
    };
    Ok(Output { stdout: open(STDOUT)?, stderr: open(STDERR)? })
}
