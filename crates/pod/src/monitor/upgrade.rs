//! Upgrade of the monitor: its process executes another program.

use std::{fs::File, io::Read, path::Path};

use monitor_api::{Attachments, MAJOR, Reply, Request, Role, Welcome};

use super::{link::unexpected, supervisor::Monitor};
use crate::{Error, error::failed, operation::blocking};

/// First minor version of the contract with the request `Upgrade`.
const SINCE: u32 = 1;
/// Number of bytes of two programs that are compared at a time.
const CHUNK: usize = 64 * 1024;

impl Monitor {
    /// Reports whether the running monitor is this program, byte for byte.
    pub(crate) async fn runs(&self, program: &Path) -> Result<bool, Error> {
        let running = format!("/proc/{}/exe", self.welcome()?.pid);
        let program = program.to_owned();
        blocking(move || {
            let open = |path: &Path| File::open(path).map_err(failed(format_args!("open {}", path.display())));
            let (one, other) = (open(Path::new(&running))?, open(&program)?);
            is_same(one, other).map_err(failed("compare monitor programs"))
        })
        .await
    }

    /// Has the monitor execute this program in place, and returns the `Welcome` of the new program.
    ///
    /// # Errors
    /// If the program cannot take over, or the running monitor cannot be upgraded: it continues unchanged.
    pub(crate) async fn upgrade(&self, program: &Path) -> Result<Welcome, Error> {
        let operation = format!("upgrade the monitor to {}", program.display());
        let now = self.welcome()?;
        if now.minor < SINCE {
            return Err(Error::state(format!(
                "{operation}: the running monitor (pinmon {}, contract {}.{}) cannot be upgraded in place, which needs \
                 {MAJOR}.{SINCE}; remove all pods, then restart the daemon",
                now.version, now.major, now.minor
            )));
        }
        let (path, context) = (program.to_owned(), operation.clone());
        let file = blocking(move || File::open(path).map_err(|e| Error::state(format!("{context}: {e}")))).await?;
        let attachments = Attachments::new().with(Role::Program, file.into());
        match self.link().await?.request(Request::Upgrade, attachments).await {
            Ok((Reply::Welcome(welcome), _)) => {
                self.update_welcome(&welcome);
                Ok(welcome)
            }
            Ok((other, _)) => Err(unexpected("Upgrade", &other)),
            Err(error) => Err(error.during(operation)),
        }
    }
}

fn is_same(mut one: File, mut other: File) -> std::io::Result<bool> {
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut a, mut b) = (vec![0; CHUNK], vec![0; CHUNK]);
    loop {
        let length = one.read(&mut a)?;
        if length == 0 {
            return Ok(true);
        }
        match other.read_exact(&mut b[..length]) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        if a[..length] != b[..length] {
            return Ok(false);
        }
    }
}
