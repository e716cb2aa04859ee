//! A program of a measurement that runs.

use std::{
    fs, io,
    path::PathBuf,
    process::Child,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{ChildStderr, ChildStdout},
    time::sleep,
};

use crate::engine::Failure;

/// Most bytes that are read of what a program prints.
const OUTPUT_MAX: u64 = 16 << 20;
/// How long a server may take until it listens, and how often its sockets are looked at.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(20);
const LISTEN_PAUSE: Duration = Duration::from_millis(100);

/// The table of the sockets where a program runs.
pub(super) trait Sockets {
    /// Returns the table of a protocol, `tcp` or `udp`, in the format of proc_net_tcp(5); empty if it cannot be read.
    fn table(&self, protocol: &str) -> String;
}

impl Sockets for PathBuf {
    fn table(&self, protocol: &str) -> String {
        fs::read_to_string(self.join(protocol)).unwrap_or_default()
    }
}

/// A program of a measurement. It is ended when this is dropped.
pub(super) struct Running {
    child: Child,
    name: String,
    sockets: Box<dyn Sockets>,
    /// Ends a program that is not a child of this process.
    end: Option<Box<dyn FnOnce()>>,
}

impl Running {
    pub(super) fn new(child: Child, name: &str, sockets: Box<dyn Sockets>) -> Self {
        Self { child, name: name.to_owned(), sockets, end: None }
    }

    /// Has the program, whose client is the child, ended by this, too.
    pub(super) fn ended_by(mut self, end: impl FnOnce() + 'static) -> Self {
        self.end = Some(Box::new(end));
        self
    }

    /// Waits for the end of the program and returns what it printed.
    pub(super) async fn output(mut self) -> Result<String, Failure> {
        let fail = |e: io::Error| Failure(format!("wait for {}: {e}", self.name));
        let stdout = self.child.stdout.take().map(ChildStdout::from_std).transpose().map_err(fail)?;
        let stderr = self.child.stderr.take().map(ChildStderr::from_std).transpose().map_err(fail)?;
        let (stdout, stderr) = tokio::try_join!(read(stdout), read(stderr)).map_err(fail)?;
        let status = self.child.wait().map_err(fail)?;
        self.end = None;
        let text = String::from_utf8_lossy(&stdout).into_owned();
        if status.success() {
            return Ok(text);
        }
        let last = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().lines().last().unwrap_or_default().to_owned();
        // iperf3 prints its error as JSON.
        let error = serde_json::from_str::<serde_json::Value>(&text).ok();
        let error = error.and_then(|error| error["error"].as_str().map(str::to_owned));
        let cause = error.unwrap_or_else(|| format!("{} {}", last(&stdout), last(&stderr)));
        Err(Failure(format!("{}: {status}: {}", self.name, cause.trim())))
    }

    /// Returns an error, with what the program printed, if it has ended.
    pub(super) async fn still_running(mut self) -> Result<Self, Failure> {
        let status = self.child.try_wait().map_err(|e| Failure(format!("wait for {}: {e}", self.name)))?;
        if status.is_none() {
            return Ok(self);
        }
        let name = self.name.clone();
        let printed = self.output().await?;
        Err(Failure(format!("{name}: ended at once: {}", printed.trim())))
    }

    /// Waits until the program has a socket that is bound to a port: `tcp` or `udp`.
    pub(super) async fn wait_for_port(&self, protocol: &str, port: u16) -> Result<(), Failure> {
        let end = Instant::now() + LISTEN_TIMEOUT;
        while !is_bound(&self.sockets.table(protocol), port) {
            if Instant::now() > end {
                return Err(Failure(format!("{} does not listen on {protocol} {port}", self.name)));
            }
            sleep(LISTEN_PAUSE).await;
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end();
        }
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // timeout(1) passes the signal on, and kills the program if it does not end.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

async fn read(source: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(source) = source {
        // A program that prints more ends by SIGPIPE.
        source.take(OUTPUT_MAX).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// Returns whether a table of sockets has one that is bound to a port and listens, or is one of UDP.
fn is_bound(table: &str, port: u16) -> bool {
    let local = format!(":{port:04X}");
    let mut rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
    // 0A is LISTEN, 07 is what UDP shows.
    rows.any(|row| row.len() > 3 && row[1].ends_with(&local) && ["0A", "07"].contains(&row[3]))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn start(script: &str) -> Running {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::new(command.spawn().expect("sh"), "meter", Box::new(PathBuf::new()))
    }

    #[tokio::test]
    async fn more_than_a_pipe_holds_is_read() {
        let text = start("yes | head -c 300000; yes | head -c 300000 >&2").output().await.expect("an output");
        assert_eq!(text.len(), 300_000);
        let error = start("echo '{\"error\": \"refused\"}'; exit 1").output().await.expect_err("a failure");
        assert_eq!(error.0, "meter: exit status: 1: refused");
    }

    #[tokio::test]
    async fn a_wait_that_is_dropped_ends_the_program() {
        let running = start("exec sleep 1000");
        let process = PathBuf::from(format!("/proc/{}", running.child.id()));
        tokio::time::timeout(Duration::from_millis(50), running.output()).await.expect_err("still running");
        assert!(!process.exists());
    }

    #[tokio::test]
    async fn a_load_that_ended_is_a_failure() {
        assert!(start("exec sleep 1000").still_running().await.is_ok());
        let running = start("echo no processors >&2; exit 3");
        sleep(Duration::from_millis(300)).await;
        let error = running.still_running().await.err().expect("a failure");
        assert_eq!(error.0, "meter: exit status: 3: no processors");
    }

    #[test]
    fn a_port_is_bound_if_a_socket_listens_or_is_of_udp() {
        let table = "  sl  local_address rem_address   st tx_queue\n   0: 0100000A:1451 00000000:0000 0A 00000000:00000000\n   \
                     1: 0100000A:1452 0200000A:9000 01 00000000:00000000\n";
        assert!(is_bound(table, 0x1451) && !is_bound(table, 0x1452) && !is_bound("", 1));
    }
}
