//! The program of a runtime handler, and what it reported about itself. It is run again after it was replaced.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::fs::{Access, access};

use super::{
    facts,
    query::{self, QueryError},
    shim_path::find_shim,
};
use crate::handler::{OciHandler, RuntimeFacts, ShimHandler};

/// How long a failure is remembered, so that a program that hangs does not delay each pod, and what is known of a program
/// that was killed.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// A handler whose containers a program runs.
pub(super) enum External {
    Oci(OciHandler),
    Shim(ShimHandler),
}

/// The program of a handler, and what is known about it.
pub(super) struct Program {
    pub(super) handler: External,
    /// Held while the program is run: other callers wait for the result.
    query: tokio::sync::Mutex<()>,
    known: Mutex<Option<Known>>,
}

struct Known {
    file: FileVersion,
    facts: Result<RuntimeFacts, String>,
    /// Whether the program would report the same again: neither did it fail nor was it killed.
    is_final: bool,
    at: Instant,
}

/// Identity of the content of a file, as far as stat(2) shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    size: i64,
    changed: (i64, u64),
}

impl Program {
    pub(super) fn new(handler: External) -> Self {
        Self { handler, query: tokio::sync::Mutex::new(()), known: Mutex::new(None) }
    }

    /// Returns what the program reports, and runs it if it was not run since it was replaced.
    ///
    /// # Errors
    /// Why the program cannot be executed, with the remedy.
    pub(super) async fn facts(&self) -> Result<RuntimeFacts, String> {
        let (binary, file) = self.file_version()?;
        if let Some(facts) = self.known(file, RETRY_AFTER) {
            return facts;
        }
        let _query = self.query.lock().await;
        if let Some(facts) = self.known(file, RETRY_AFTER) {
            return facts;
        }
        let (facts, is_final) = self.handler.run(&binary).await;
        match &facts {
            Err(error) => tracing::warn!(handler = self.handler.name(), "{error}"),
            Ok(_) if !is_final => {
                let binary = binary.display();
                tracing::warn!(handler = self.handler.name(), "{binary} was killed while it reported its features");
            }
            Ok(_) => {}
        }
        let known = Known { file, facts: facts.clone(), is_final, at: Instant::now() };
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
        facts
    }

    /// Returns what the program reported when it was run last, or why it cannot be executed. `None` if it was not run
    /// since it was replaced.
    pub(super) fn known_facts(&self) -> Option<Result<RuntimeFacts, String>> {
        match self.file_version() {
            Ok((_, file)) => self.known(file, Duration::MAX),
            Err(cause) => Some(Err(cause)),
        }
    }

    /// Returns the path of the program, and the version of that file.
    fn file_version(&self) -> Result<(PathBuf, FileVersion), String> {
        let binary = self.handler.binary()?;
        let version = offload::in_place(|| file_version(&binary));
        match version {
            Ok(version) => Ok((binary, version)),
            Err(cause) => Err(self.handler.cannot_execute(&binary, &cause)),
        }
    }

    /// Returns what the program reported; what is not final only if it is not older than `age`.
    fn known(&self, file: FileVersion, age: Duration) -> Option<Result<RuntimeFacts, String>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.as_ref().filter(|known| known.file == file)?;
        (known.is_final || known.at.elapsed() < age).then(|| known.facts.clone())
    }
}

/// Returns the version of an executable file.
fn file_version(path: &Path) -> Result<FileVersion, String> {
    let stat = rustix::fs::stat(path).map_err(|errno| std::io::Error::from(errno).to_string())?;
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err("it is not a file".to_owned());
    }
    access(path, Access::EXEC_OK).map_err(|_| "it is not executable".to_owned())?;
    Ok(FileVersion {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: stat.st_size,
        changed: (stat.st_mtime, stat.st_mtime_nsec),
    })
}

impl External {
    fn name(&self) -> &str {
        match self {
            Self::Oci(handler) => &handler.name,
            Self::Shim(handler) => &handler.name,
        }
    }

    /// Returns the program as it is configured: a path, or the name of a shim.
    pub(super) fn configured(&self) -> &PathBuf {
        match self {
            Self::Oci(handler) => &handler.binary,
            Self::Shim(handler) => &handler.binary,
        }
    }

    /// Returns the path of the program.
    fn binary(&self) -> Result<PathBuf, String> {
        match self {
            Self::Oci(handler) => Ok(handler.binary.clone()),
            Self::Shim(handler) => find_shim(handler),
        }
    }

    /// Runs the program. Returns what it reported, and whether that is final.
    async fn run(&self, binary: &Path) -> (Result<RuntimeFacts, String>, bool) {
        let (facts, outcomes) = match self {
            Self::Oci(handler) => {
                // Without a root, some create the one that they have by default.
                let root = handler.root.as_deref().unwrap_or(Path::new("/run")).to_string_lossy();
                let (version, features) = (["--root", &root, "--version"], ["--root", &root, "features"]);
                let (version, features) = tokio::join!(
                    query::output(binary, &version, &handler.environment, &[]),
                    query::output(binary, &features, &handler.environment, &[])
                );
                // A runtime that lacks one of them reports less.
                let facts = facts::parse(version.as_deref().ok(), features.as_deref().ok());
                (facts, vec![version, features])
            }
            Self::Shim(handler) => {
                let input = shim::Info::stdin(handler.options.as_ref());
                let info = query::output(binary, &shim::Info::ARGUMENTS, &handler.environment, &input).await;
                let mut facts = facts::parse_info(info.as_deref().ok());
                if let (true, Some(features)) = (handler.sandbox_container, &mut facts.features) {
                    // Those that the runtime creates in its sandbox. It cannot join that of the pod.
                    features.user_namespaces = false;
                }
                (facts, vec![info])
            }
        };
        for outcome in &outcomes {
            match outcome {
                Err(QueryError::NotExecuted(cause)) => return (Err(self.cannot_execute(binary, cause)), false),
                Err(QueryError::TimedOut) => return (Err(self.hangs(binary)), false),
                Err(QueryError::Failed | QueryError::Killed) | Ok(_) => {}
            }
        }
        let was_killed = outcomes.contains(&Err(QueryError::Killed));
        (Ok(facts), !was_killed)
    }

    fn hangs(&self, binary: &Path) -> String {
        let binary = binary.display();
        match self {
            Self::Oci(_) => format!("{binary} hangs: neither --version nor features may wait for anything; run both"),
            Self::Shim(_) => format!("{binary} hangs: -info may not wait for anything; run it"),
        }
    }

    fn cannot_execute(&self, binary: &Path, cause: &str) -> String {
        let (binary, name) = (binary.display(), self.name());
        let program = match self {
            Self::Oci(_) => "runtime",
            Self::Shim(_) => "shim",
        };
        format!("{binary} cannot be executed: {cause}; install the {program}, or correct handlers.{name}.binary")
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[tokio::test]
    async fn what_a_killed_program_reported_is_not_final() {
        let directory = tempfile::tempdir().expect("a directory");
        let binary = directory.path().join("runtime");
        fs::write(&binary, "#!/bin/sh\n[ $3 = --version ] && echo x version 1 && exit\nkill -9 $$\n").expect("write");
        fs::set_permissions(&binary, PermissionsExt::from_mode(0o755)).expect("chmod");
        let program = Program::new(External::Oci(OciHandler { binary, ..OciHandler::default() }));
        let facts = program.facts().await.expect("it can be executed");
        assert_eq!((facts.version.as_str(), facts.features), ("x 1", None));
        let (_, file) = program.file_version().expect("the file");
        assert!(program.known(file, RETRY_AFTER).is_some(), "it is not run for each pod");
        assert!(program.known(file, Duration::ZERO).is_none(), "but again after some time");
    }
}
