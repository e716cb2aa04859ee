//! Another program in the monitor's process.

use std::{fs::File, io::Read, path::Path};

use monitor_api::{Attachments, MAJOR, Reply, Request, Role, Welcome};

use super::{Monitor, link::unexpected};
use crate::{Error, engine::blocking, error::failed};

/// First minor version of the contract that has `Upgrade`.
const SINCE: u32 = 1;
/// How much of two programs is compared at a time.
const PIECE: usize = 64 * 1024;

impl Monitor {
    /// Whether the running monitor is this program, byte by byte.
    pub(crate) async fn runs(&self, program: &Path) -> Result<bool, Error> {
        let running = format!("/proc/{}/exe", self.welcome()?.pid);
        let program = program.to_owned();
        blocking(move || {
            let open = |path: &Path| File::open(path).map_err(failed(format_args!("open {}", path.display())));
            let (one, other) = (open(Path::new(&running))?, open(&program)?);
            same(one, other).map_err(failed("compare monitor programs"))
        })
        .await
    }

    /// Has it execute this program in its place, and gives what that says of itself.
    ///
    /// # Errors
    /// The program cannot take over, or the monitor that runs cannot give way: it goes on, nothing changed.
    pub(crate) async fn upgrade(&self, program: &Path) -> Result<Welcome, Error> {
        let told = format!("upgrade the monitor to {}", program.display());
        let now = self.welcome()?;
        if now.minor < SINCE {
            return Err(Error::state(format!(
                "{told}: the monitor that runs (pinmon {}, contract {}.{}) cannot be upgraded in place, which needs \
                 {MAJOR}.{SINCE}; end all pods, then restart the daemon",
                now.version, now.major, now.minor
            )));
        }
        let (path, during) = (program.to_owned(), told.clone());
        let file = blocking(move || File::open(path).map_err(|e| Error::state(format!("{during}: {e}")))).await?;
        let attachments = Attachments::new().with(Role::Program, file.into());
        match self.link().await?.ask(Request::Upgrade, attachments).await {
            Ok((Reply::Welcome(welcome), _)) => {
                self.welcomed(&welcome);
                Ok(welcome)
            }
            Ok((other, _)) => Err(unexpected("Upgrade", &other)),
            Err(error) => Err(error.during(told)),
        }
    }
}

fn same(mut one: File, mut other: File) -> std::io::Result<bool> {
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut a, mut b) = (vec![0; PIECE], vec![0; PIECE]);
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
