use std::{
    io::ErrorKind,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    str::FromStr,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{engine::Failure, program};

/// Timeout of one start, and of the end of a daemon.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Interval at which a daemon that is awaited may be found to have exited.
const POLL: Duration = Duration::from_millis(20);

/// A daemon to measure, parsed from `NAME=PROGRAM`.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    pub(super) name: String,
    program: PathBuf,
}

impl FromStr for Daemon {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, program) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=PROGRAM"))?;
        Ok(Self { name: name.to_owned(), program: program.into() })
    }
}

impl Daemon {
    /// Returns what the program prints about its version; `?` if it does not.
    pub(super) fn version(&self) -> String {
        program::version(&[self.program.to_string_lossy().into_owned()])
    }

    /// Starts it and waits until it is ready. Returns how long that took.
    pub(super) fn start(&self, config: &Path) -> Result<(Child, Duration), Failure> {
        let failed = |error: std::io::Error| Failure(format!("start {}: {error}", self.program.display()));
        let path = std::env::temp_dir().join(format!("pinion-bench-notify-{}", std::process::id()));
        // That of a start that failed.
        let _ = std::fs::remove_file(&path);
        let notify = UnixDatagram::bind(&path).map_err(failed)?;
        notify.set_read_timeout(Some(POLL)).map_err(failed)?;
        let mut command = Command::new("setsid");
        command.arg(&self.program).arg("serve").arg("--config").arg(config).env("NOTIFY_SOCKET", &path);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        let mut child = command.spawn().map_err(failed)?;
        let ready = wait_for_ready(&notify, &mut child);
        let time = start.elapsed();
        let _ = std::fs::remove_file(&path);
        match ready {
            Ok(()) => Ok((child, time)),
            Err(error) => {
                stop(&mut child)?;
                Err(failed(error))
            }
        }
    }
}

/// Waits until a daemon reports that it is ready, or has exited.
fn wait_for_ready(notify: &UnixDatagram, child: &mut Child) -> std::io::Result<()> {
    let mut text = [0; 4096];
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match notify.recv(&mut text) {
            Ok(length) if text[..length].starts_with(b"READY=1") => return Ok(()),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        if let Some(status) = child.try_wait()? {
            return Err(std::io::Error::other(format!("it ended: {status}")));
        }
        if Instant::now() > deadline {
            return Err(std::io::Error::other(format!("it is not ready after {} s", TIMEOUT.as_secs())));
        }
    }
}

/// Stops a daemon; its containers keep running. One that does not end in time is killed.
///
/// # Errors
/// It had to be killed.
pub(super) fn stop(daemon: &mut Child) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure(format!("stop the daemon: {error}"));
    if daemon.try_wait().map_err(failed)?.is_none() {
        kill_process(Pid::from_child(daemon), Signal::TERM).map_err(|errno| failed(errno.into()))?;
        if program::wait(daemon, TIMEOUT).map_err(failed)?.is_none() {
            daemon.kill().and_then(|()| daemon.wait()).map_err(failed)?;
            return Err(failed(std::io::Error::other(format!("it did not end in {} s", TIMEOUT.as_secs()))));
        }
    }
    Ok(())
}
