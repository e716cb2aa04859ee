//! The process of a server, and a run of its client.

use std::{
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal};

use super::{
    client::Measured,
    plan::{PINS, Strategy, use_processors},
    server::{memory, processor_time},
};
use crate::{
    engine::Failure,
    program::{self, Lines},
};

/// A server that does not listen by then has failed.
const START: Duration = Duration::from_secs(60);

/// A server to measure.
pub(super) enum Kind {
    Strategy(Strategy),
    Program(PathBuf),
}

impl Kind {
    /// Returns its name in the tables.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Strategy(strategy) => strategy.to_string(),
            Self::Program(path) => path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        }
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) measured: Measured,
    /// Processor time of the server.
    pub(super) cpu_us_per_request: f64,
    /// From the start of the server's program until it listened in all namespaces.
    pub(super) listening: Duration,
    /// Memory of the server's processes.
    pub(super) pss_kib: u64,
    /// Threads of the server's processes.
    pub(super) threads: u64,
}

/// Starts a server, runs the client for so many seconds, and ends the server.
pub(super) fn measure(kind: &Kind, namespaces: usize, connections: usize, seconds: f64) -> Result<Run, Failure> {
    let server = Server::start(kind, namespaces)?;
    // One namespace has all connections.
    let (count, each) = match kind {
        Kind::Strategy(Strategy::One) => (1, namespaces * connections),
        _ => (namespaces, connections),
    };
    let is_vrf = matches!(kind, Kind::Strategy(Strategy::Vrf));
    let measured = server.measure(count, each, seconds, is_vrf);
    let run = measured.map(|(measured, cpu)| server.result(measured, cpu));
    server.end()?;
    run
}

struct Server {
    process: Child,
    /// It and its children.
    pids: Vec<u32>,
    listening: Duration,
    /// It does not end with its input.
    is_program: bool,
}

impl Server {
    fn start(contestant: &Kind, namespaces: usize) -> Result<Self, Failure> {
        let mut command = match contestant {
            Kind::Strategy(strategy) => {
                let mut command = Command::new("/proc/self/exe");
                command.args(["netns-server", "--strategy", &strategy.to_string(), "--count", &namespaces.to_string()]);
                command
            }
            Kind::Program(path) => {
                let mut command = Command::new(path);
                command.args(["--pins", PINS]);
                command
            }
        };
        let fail = |e: std::io::Error| Failure(format!("start the server {}: {e}", contestant.name()));
        let begin = Instant::now();
        // An interrupt from the terminal is to end the run after this turn, not the server.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut process = on_the_servers_processors(|| command.spawn().map_err(fail))?;
        let output = process.stdout.take().ok_or_else(|| Failure("the server has no output".to_owned()))?;
        let line = Lines::of(output).and_then(|lines| lines.next(START)).inspect_err(|_| {
            let _ = process.kill();
            let _ = process.wait();
        });
        let line = line.map_err(fail)?;
        let listening = begin.elapsed();
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() != Some(&"listening") {
            let _ = process.kill();
            let _ = process.wait();
            return Err(Failure(format!("the server {} did not start: {line:?}", contestant.name())));
        }
        let is_program = matches!(contestant, Kind::Program(_));
        let mut pids = vec![process.id()];
        if !is_program {
            pids.extend(words.iter().skip(2).filter_map(|pid| pid.parse::<u32>().ok()));
        }
        Ok(Self { process, pids, listening, is_program })
    }

    fn cpu(&self) -> Duration {
        self.pids.iter().map(|pid| processor_time(*pid)).sum()
    }

    /// Runs the client, and returns what it measured together with the processor time of the server.
    fn measure(
        &self,
        count: usize,
        connections: usize,
        seconds: f64,
        is_vrf: bool,
    ) -> Result<(Measured, Duration), Failure> {
        let fail = |e: std::io::Error| Failure(format!("run the client: {e}"));
        let mut command = Command::new("/proc/self/exe");
        command.args(["netns-client", "--count", &count.to_string(), "--connections", &connections.to_string()]);
        command.args(["--seconds", &seconds.to_string()]).args(is_vrf.then_some("--vrf"));
        let mut client = command.stdout(Stdio::piped()).process_group(0).spawn().map_err(fail)?;
        let output = client.stdout.take().ok_or_else(|| Failure("the client has no output".to_owned()))?;
        let lines = Lines::of(output).map_err(fail)?;
        let limit = START + Duration::from_secs_f64(seconds * 2.0);
        let mut line = || {
            lines.next(limit).inspect_err(|_| {
                // It has ended, or does not respond.
                let _ = client.kill();
                let _ = client.wait();
            })
        };
        let (_connected, _begin) = (line().map_err(fail)?, line().map_err(fail)?);
        let before = self.cpu();
        let result = line().map_err(fail)?;
        let cpu = self.cpu().saturating_sub(before);
        let status = client.wait().map_err(fail)?;
        if !status.success() {
            return Err(Failure(format!("the client failed: {status}")));
        }
        let measured =
            serde_json::from_str(&result).map_err(|e| Failure(format!("the client printed {result:?}: {e}")))?;
        Ok((measured, cpu))
    }

    fn result(&self, measured: Measured, cpu: Duration) -> Run {
        let (pss_kib, threads) = self.pids.iter().map(|pid| memory(*pid)).fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
        Run {
            measured,
            cpu_us_per_request: cpu.as_secs_f64() * 1e6 / measured.requests.max(1) as f64,
            listening: self.listening,
            pss_kib,
            threads,
        }
    }

    fn end(mut self) -> Result<(), Failure> {
        drop(self.process.stdin.take());
        if self.is_program {
            let fail = |e: rustix::io::Errno| Failure(format!("end the server: {e}"));
            rustix::process::kill_process(Pid::from_child(&self.process), Signal::TERM).map_err(fail)?;
        }
        let ended = program::wait(&mut self.process, START);
        if ended.map_err(|error| Failure(format!("wait for the server: {error}")))?.is_some() {
            return Ok(());
        }
        self.process.kill().and_then(|()| self.process.wait()).map_err(|e| Failure(format!("kill the server: {e}")))?;
        Ok(())
    }
}

/// Runs work on a thread that uses the processors of the server, as do the processes that it starts.
fn on_the_servers_processors<T: Send>(work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    thread::scope(|scope| {
        let restricted = || use_processors(true).and_then(|_| work());
        let started = thread::Builder::new().spawn_scoped(scope, restricted);
        let started = started.map_err(|e| Failure(format!("start a thread: {e}")))?;
        started.join().unwrap_or_else(|_| Err(Failure("the thread that starts the server panicked".to_owned())))
    })
}
