//! Rounds: in each, all servers are measured once, one after the other.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use netns::SysctlDir;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::{
    Arguments,
    client::Measured,
    plan::{PINS, Strategy, name, pins, use_processors},
    report::{Case, Run, Series},
    server::{memory, processor_time},
    vrf,
};
use crate::engine::Failure;

/// A server that does not listen by then has failed.
const START: Duration = Duration::from_secs(60);

/// A server to measure.
enum Contestant<'a> {
    Strategy(Strategy),
    Program(&'a Path),
}

impl Contestant<'_> {
    fn name(&self) -> String {
        match self {
            Self::Strategy(strategy) => strategy.to_string(),
            Self::Program(path) => path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        }
    }
}

/// Measures all servers with so many namespaces, and so many connections in each.
pub(super) fn measure(arguments: &Arguments, namespaces: usize, connections: usize) -> Result<Case, Failure> {
    let group = pins()?;
    let too_many = too_many_descriptors(namespaces, connections);
    // Nothing is created for what cannot be measured.
    let created = if too_many.is_some() { 0 } else { namespaces };
    for (number, namespace) in netns::Namespace::create_many(created, 0)?.enumerate() {
        let namespace = namespace?;
        if number == 0 {
            // One namespace has the connections of all: more than there are ports by default.
            SysctlDir::open(&namespace, "ipv4")?.write("ip_local_port_range", "1024 65535")?;
        }
        group.pins().pin(&name(number), &namespace)?;
    }
    let possible = arguments.strategies.iter().copied().filter(|strategy| strategy.is_possible(namespaces));
    let mut contestants: Vec<Contestant<'_>> = possible.map(Contestant::Strategy).collect();
    contestants.extend(arguments.server.as_deref().map(Contestant::Program));
    let mut series: Vec<Series> = contestants.iter().map(|contestant| Series::new(contestant.name())).collect();
    for (series, contestant) in series.iter_mut().zip(&contestants) {
        if too_many.is_some() {
            series.not_measured.clone_from(&too_many);
        } else if matches!(contestant, Contestant::Strategy(Strategy::Vrf)) {
            series.not_measured = vrf::create(&group, namespaces).err().map(|failure| failure.0);
        }
    }
    for round in 0..arguments.rounds {
        for (series, contestant) in series.iter_mut().zip(&contestants) {
            if series.not_measured.is_some() {
                continue;
            }
            eprintln!("{namespaces} namespaces × {connections}, round {}: {}", round + 1, series.server);
            series.runs.push(measure_one(contestant, namespaces, connections, arguments.seconds)?);
        }
    }
    group.delete()?;
    Ok(Case { namespaces, connections, series })
}

/// Raises the limit of descriptors to the maximum; returns why so many sockets are not possible, if they are not.
fn too_many_descriptors(namespaces: usize, connections: usize) -> Option<String> {
    /// Descriptors of a server that are not sockets.
    const OTHERS: usize = 64;
    let limit = getrlimit(Resource::Nofile);
    // A process may always raise its limit to the maximum, and its children inherit it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let needed = namespaces.saturating_mul(connections + 1).saturating_add(OTHERS);
    let maximum = limit.maximum.unwrap_or(u64::MAX);
    (needed as u64 > maximum).then(|| format!("needs {needed} descriptors, the limit is {maximum}"))
}

fn measure_one(
    contestant: &Contestant<'_>,
    namespaces: usize,
    connections: usize,
    seconds: f64,
) -> Result<Run, Failure> {
    let server = Server::start(contestant, namespaces)?;
    // One namespace has all connections.
    let (count, each) = match contestant {
        Contestant::Strategy(Strategy::One) => (1, namespaces * connections),
        _ => (namespaces, connections),
    };
    let is_vrf = matches!(contestant, Contestant::Strategy(Strategy::Vrf));
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
    fn start(contestant: &Contestant<'_>, namespaces: usize) -> Result<Self, Failure> {
        let mut command = match contestant {
            Contestant::Strategy(strategy) => {
                let mut command = Command::new("/proc/self/exe");
                command.args(["netns-server", "--strategy", &strategy.to_string(), "--count", &namespaces.to_string()]);
                command
            }
            Contestant::Program(path) => {
                let mut command = Command::new(path);
                command.args(["--pins", PINS]);
                command
            }
        };
        let fail = |e: std::io::Error| Failure(format!("start the server {}: {e}", contestant.name()));
        let begin = Instant::now();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = on_the_servers_processors(|| command.spawn().map_err(fail))?;
        let output = process.stdout.take().ok_or_else(|| Failure("the server has no output".to_owned()))?;
        let line = first_line(output, &mut process).map_err(fail)?;
        let listening = begin.elapsed();
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() != Some(&"listening") {
            let _ = process.kill();
            let _ = process.wait();
            return Err(Failure(format!("the server {} did not start: {line:?}", contestant.name())));
        }
        let is_program = matches!(contestant, Contestant::Program(_));
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
        let mut client = command.stdout(Stdio::piped()).spawn().map_err(fail)?;
        let output = client.stdout.take().ok_or_else(|| Failure("the client has no output".to_owned()))?;
        let mut lines = BufReader::new(output.take(4096)).lines();
        let mut line = || lines.next().transpose().map(Option::unwrap_or_default);
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
            listening_ms: self.listening.as_secs_f64() * 1000.0,
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
        let end = Instant::now() + START;
        while Instant::now() < end {
            match self.process.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                Ok(Some(_)) => return Ok(()),
                Err(error) => return Err(Failure(format!("wait for the server: {error}"))),
            }
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

/// Returns the first line that the server prints; kills it if it prints none in time.
fn first_line(output: ChildStdout, process: &mut Child) -> std::io::Result<String> {
    let (sender, line) = std::sync::mpsc::sync_channel(1);
    thread::Builder::new().spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(output.take(65536)).read_line(&mut line);
        // The receiver may have stopped waiting.
        let _ = sender.send(read.map(|_| line));
    })?;
    line.recv_timeout(START).unwrap_or_else(|_| {
        let _ = process.kill();
        Err(std::io::ErrorKind::TimedOut.into())
    })
}
