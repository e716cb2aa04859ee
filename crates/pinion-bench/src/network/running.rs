//! A program of a measurement that runs.

use std::{fs, path::PathBuf};

use super::retry;
use crate::engine::Failure;

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
    child: Option<std::process::Child>,
    name: String,
    sockets: Box<dyn Sockets>,
    /// Ends a program that is not a child of this process.
    end: Option<Box<dyn FnOnce()>>,
}

impl Running {
    pub(super) fn new(child: std::process::Child, name: &str, sockets: Box<dyn Sockets>) -> Self {
        Self { child: Some(child), name: name.to_owned(), sockets, end: None }
    }

    /// Has the program, whose client is the child, ended by this, too.
    pub(super) fn ended_by(mut self, end: impl FnOnce() + 'static) -> Self {
        self.end = Some(Box::new(end));
        self
    }

    /// Waits for the end of the program and returns what it printed.
    pub(super) fn output(mut self) -> Result<String, Failure> {
        let fail = |e: std::io::Error| Failure(format!("wait for {}: {e}", self.name));
        let Some(child) = self.child.take() else { return Ok(String::new()) };
        let output = child.wait_with_output().map_err(fail)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        let last = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().lines().last().unwrap_or_default().to_owned();
        // iperf3 prints its error as JSON.
        let error = serde_json::from_str::<serde_json::Value>(&text).ok();
        let error = error.and_then(|error| error["error"].as_str().map(str::to_owned));
        let cause = error.unwrap_or_else(|| format!("{} {}", last(&output.stdout), last(&output.stderr)));
        Err(Failure(format!("{}: {}: {}", self.name, output.status, cause.trim())))
    }

    /// Waits until the program has a socket that is bound to a port: `tcp` or `udp`.
    pub(super) fn wait_for_port(&self, protocol: &str, port: u16) -> Result<(), Failure> {
        let local = format!(":{port:04X}");
        retry(std::time::Duration::from_secs(20), || {
            let table = self.sockets.table(protocol);
            let mut rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
            // 0A is LISTEN, 07 is what UDP shows.
            let is_bound = rows.any(|row| row.len() > 3 && row[1].ends_with(&local) && ["0A", "07"].contains(&row[3]));
            is_bound.then_some(()).ok_or_else(|| Failure(format!("{} does not listen on {protocol} {port}", self.name)))
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(child) = self.child.as_mut() else { return };
        if let Some(end) = self.end.take() {
            end();
        }
        // timeout(1) passes the signal on, and kills the program if it does not end.
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(child), rustix::process::Signal::TERM);
        let _ = child.wait();
    }
}
