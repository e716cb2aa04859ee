//! The program `pinion-wasm`, its version, and the cache of that version.

use std::{os::unix::fs::MetadataExt, path::Path, process::Stdio, time::Duration};

use rustix::fd::OwnedFd;
use tokio::{io::AsyncReadExt, process::Command};

use super::{cache::Cache, failures::Failures, read_only::read_only_clone};
use crate::{Error, error::failed, operation::blocking};

/// How long the program may take to print its version.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Longest version.
const VERSION_MAX: usize = 64;

/// Device, inode, size and modification time (seconds, nanoseconds) of a file.
pub(super) type Identity = (u64, u64, u64, i64, i64);

/// An open program.
pub(super) struct Program {
    pub(super) identity: Identity,
    /// Version of the engine, with a hash of all that compiled code depends on.
    pub(super) version: String,
    pub(super) cache: Cache,
    pub(super) failures: Failures,
    /// Its file, on a read-only mount: it is visible in containers as `/proc/<pid>/exe` (CVE-2019-5736).
    file: OwnedFd,
}

/// Returns the identity of the program's file.
///
/// # Errors
/// `FailedPrecondition`: it does not exist.
pub(super) fn identity(binary: &Path) -> Result<Identity, Error> {
    let missing =
        |cause| Error::state(format!("{}: {cause}; install pinion-wasm, or correct binary", binary.display()));
    let file = std::fs::metadata(binary).map_err(missing)?;
    Ok((file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
}

impl Program {
    /// Opens the program and the cache of its version.
    pub(super) async fn open(binary: &Path, identity: Identity, directory: &Path) -> Result<Self, Error> {
        let version = version(binary).await?;
        let (binary, directory) = (binary.to_owned(), directory.join(&version));
        let (file, cache) = blocking(move || Ok((read_only_clone(&binary)?, Cache::open(directory)?))).await?;
        Ok(Self { identity, version, cache, failures: Failures::default(), file })
    }

    /// Returns another descriptor of the program.
    pub(super) fn duplicate(&self) -> Result<OwnedFd, Error> {
        self.file.try_clone().map_err(failed("duplicate a descriptor"))
    }
}

/// Runs `pinion-wasm engine`.
async fn version(binary: &Path) -> Result<String, Error> {
    let error = |cause: String| Error::state(format!("run {} engine: {cause}", binary.display()));
    let mut command = Command::new(binary);
    command.arg("engine").env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.kill_on_drop(true).spawn().map_err(|cause| error(cause.to_string()))?;
    let output = child.stdout.take().ok_or_else(|| error("it has no output".to_owned()))?;
    let mut text = String::new();
    let read = async {
        output.take(VERSION_MAX as u64 + 1).read_to_string(&mut text).await?;
        child.wait().await
    };
    let status = tokio::time::timeout(TIMEOUT, read).await.map_err(|_| error(format!("no answer for {TIMEOUT:?}")))?;
    let status = status.map_err(|cause| error(cause.to_string()))?;
    let version = text.trim();
    // It becomes the name of a directory.
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    let is_valid = !version.is_empty() && version.bytes().all(is_allowed) && !version.starts_with('.');
    match status.success() && text.len() <= VERSION_MAX && is_valid {
        true => Ok(version.to_owned()),
        false => Err(error(format!("it is not a program of this version: {status}, output {version:?}"))),
    }
}
