//! What becomes of a call: an answer at once, later, or when the ports that it names exist.

use std::time::Duration;

use agent_api::{Call, Failure, FailureKind, ProcessId, Reply, Request, Statistics, Streams};
use rustix::{
    process::Signal,
    termios::{Winsize, tcsetwinsize},
};

use crate::{
    agent::{Agent, ParkedCall},
    capacity, clock, configure,
    connection::Caller,
    create::OpenPorts,
    failure::{Unapplied, state, system, unknown},
    process::{Outcome, Process, Stage},
};

/// How long the ports that a call names, and the devices that a configuration needs, may take to appear.
const PORT_TIMEOUT: Duration = Duration::from_secs(5);
const DEVICE_TIMEOUT: Duration = Duration::from_secs(15);

impl Agent {
    /// Handles a call.
    pub(crate) fn handle(&mut self, connection: u64, call: Call) {
        let caller = Caller { connection, call: call.id };
        match call.request {
            request @ (Request::Create(_) | Request::Exec(_) | Request::Forward { .. } | Request::Configure(_)) => {
                let timeout = if matches!(request, Request::Configure(_)) { DEVICE_TIMEOUT } else { PORT_TIMEOUT };
                self.parked.push(ParkedCall { caller, request, until: clock::monotonic() + timeout });
                self.unpark();
            }
            request => match self.perform(caller, request) {
                Ok(None) => {}
                Ok(Some(reply)) => self.answer(caller, Ok(reply)),
                Err(failure) => self.answer(caller, Err(failure)),
            },
        }
    }

    /// Performs a request. `None`: it is answered later.
    fn perform(&mut self, caller: Caller, request: Request) -> Outcome<Option<Reply>> {
        let done = |()| Some(Reply::Done);
        match request {
            Request::Ping => Ok(Some(Reply::Done)),
            Request::Start { container } => self.start(caller, &container),
            Request::Signal { process, signal, all } => self.signal(&process, signal, all).map(done),
            Request::Resize { process, size } => self.resize(&process, size).map(done),
            Request::State { process } => Ok(Some(Reply::State(self.find("get the state of", &process)?.state()))),
            Request::Wait { process } => {
                let found = self.processes.get_mut(&process).ok_or_else(|| unknown("wait for", &process))?;
                found.waiting.push(caller);
                Ok(None)
            }
            Request::Delete { process } => self.delete(caller, &process),
            Request::Update { container, resources } => self.update(&container, &resources).map(done),
            Request::Freeze { container, frozen } => self.freeze(&container, frozen).map(done),
            Request::Statistics { container } => {
                self.statistics(&container).map(|usage| Some(Reply::Statistics(usage)))
            }
            Request::Online => capacity::online(self.boot_memory).map(|capacity| Some(Reply::Capacity(capacity))),
            Request::Shutdown => {
                self.should_end = true;
                Ok(None)
            }
            // Handled where calls are parked.
            Request::Create(_) | Request::Exec(_) | Request::Forward { .. } | Request::Configure(_) => Ok(None),
        }
    }

    /// Performs the parked calls whose ports or devices exist, and fails those that have waited for too long.
    pub(crate) fn unpark(&mut self) {
        for mut parked in std::mem::take(&mut self.parked) {
            // An answer before may have ended its connection.
            if !self.connections.contains_key(&parked.caller.connection) {
                continue;
            }
            if let Request::Forward { port, stream } = &parked.request {
                match (self.ports.open(stream), *port) {
                    (None, _) => self.keep_parked(parked),
                    (Some(stream), port) => {
                        if let Err(failure) = self.forward(parked.caller, port, stream) {
                            self.answer(parked.caller, Err(failure));
                        }
                    }
                }
                continue;
            }
            if let Request::Configure(configuration) = &mut parked.request {
                match configure::apply(configuration) {
                    Err(Unapplied::Absent(_)) if clock::monotonic() < parked.until => self.parked.push(parked),
                    Err(Unapplied::Absent(failure)) => {
                        let failure = Failure::new(FailureKind::Absent, failure.message);
                        self.answer(parked.caller, Err(failure));
                    }
                    Err(Unapplied::Failed(failure)) => self.answer(parked.caller, Err(failure)),
                    Ok(()) => self.answer(parked.caller, Ok(Reply::Done)),
                }
                continue;
            }
            let Some(ports) = OpenPorts::open(&mut self.ports, streams(&parked.request)) else {
                self.keep_parked(parked);
                continue;
            };
            let caller = parked.caller;
            let outcome = match parked.request {
                Request::Create(request) => self.create(caller, *request, ports),
                Request::Exec(request) => self.exec(caller, *request, ports),
                _ => Ok(()),
            };
            if let Err(failure) = outcome {
                self.answer(caller, Err(failure));
            }
        }
    }

    fn keep_parked(&mut self, parked: ParkedCall) {
        if clock::monotonic() < parked.until {
            self.parked.push(parked);
            return;
        }
        let names = port_names(&parked.request);
        let seconds = PORT_TIMEOUT.as_secs();
        let cause = format!("one of the ports {} did not appear in {seconds} s, or is in use", names.join(", "));
        self.answer(parked.caller, Err(system("open the streams of a process", cause)));
    }

    fn find(&self, operation: &str, id: &ProcessId) -> Outcome<&Process> {
        self.processes.get(id).ok_or_else(|| unknown(operation, id))
    }

    fn find_container(&self, operation: &str, container: &str) -> Outcome<&Process> {
        self.find(operation, &ProcessId::container(container))
    }

    fn signal(&self, id: &ProcessId, signal: i32, all: bool) -> Outcome<()> {
        let process = self.find("signal", id)?;
        let failed = |cause: &dyn std::fmt::Display| system(format_args!("signal {}", crate::failure::name(id)), cause);
        if all && signal == Signal::KILL.as_raw() && id.exec.is_none() {
            // At once: a process cannot fork away from it.
            return process.group().kill().map_err(|error| failed(&error));
        }
        if all {
            return process.group().signal(signal).map_err(|error| failed(&error));
        }
        match syscall::pidfd_signal::pidfd_signal(&process.setup.pidfd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(failed(&errno)),
        }
    }

    fn resize(&self, id: &ProcessId, size: oci::TerminalSize) -> Outcome<()> {
        let process = self.find("resize the terminal of", id)?;
        let Some(terminal) = &process.terminal else {
            return Err(state("resize the terminal of", id, "it has no terminal"));
        };
        let size = Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(terminal, size).map_err(|errno| system("resize a terminal", errno))
    }

    fn update(&self, container: &str, resources: &oci::Resources) -> Outcome<()> {
        let process = self.find_container("update", container)?;
        if matches!(process.stage, Stage::Exited(_) | Stage::Failed) {
            return Err(state("update", &process.id, "it has exited"));
        }
        let failed = |error: cgroup::Error| system(format_args!("update container {container}"), error);
        check_memory(process, resources)?;
        let limits = cgroup::Limits::from_spec(resources).map_err(failed)?;
        process.group().update(&limits).map_err(failed)
    }

    fn freeze(&self, container: &str, frozen: bool) -> Outcome<()> {
        let group = self.find_container("freeze", container)?.group();
        let outcome = if frozen { group.freeze() } else { group.thaw() };
        outcome.map_err(|error| system(format_args!("freeze container {container}"), error))
    }

    fn statistics(&self, container: &str) -> Outcome<Statistics> {
        let process = self.find_container("get the statistics of", container)?;
        let stats = process.group().stats().map_err(|error| system("read statistics", error))?;
        let processes = process.group().pids().map_or(0, |pids| pids.len() as u64);
        Ok(Statistics {
            cpu_usage_ns: stats.cpu_usage_ns,
            cpu_user_ns: stats.cpu_user_ns,
            cpu_system_ns: stats.cpu_system_ns,
            memory_usage: stats.memory_usage,
            memory_working_set: stats.memory_working_set,
            memory_rss: stats.memory_rss,
            memory_limit: stats.memory_limit,
            page_faults: stats.page_faults,
            major_page_faults: stats.major_page_faults,
            pids: stats.pids,
            pids_limit: stats.pids_limit,
            processes,
            swap_usage: stats.swap_usage,
            memory_file: stats.memory_file,
            cpu_periods: stats.cpu_periods,
            cpu_throttled_periods: stats.cpu_throttled_periods,
            cpu_throttled_ns: stats.cpu_throttled_ns,
            oom_kills: process.group().oom_kills(),
        })
    }
}

/// Refuses a memory limit below the usage: the kernel would kill processes of the container.
fn check_memory(process: &Process, resources: &oci::Resources) -> Outcome<()> {
    let limit = resources.memory.as_ref().and_then(|memory| memory.limit).filter(|limit| *limit > 0);
    let Some(limit) = limit else { return Ok(()) };
    let stats = process.group().stats().map_err(|error| system("read the memory usage", error))?;
    match stats.memory_working_set <= limit.unsigned_abs() {
        true => Ok(()),
        false => {
            let used = stats.memory_working_set;
            let cause = format!(
                "the memory limit {limit} is below the {used} bytes that are in use and cannot be reclaimed; nothing was \
                 changed"
            );
            Err(state("update", &process.id, &cause))
        }
    }
}

/// Returns the ports that a request names.
fn streams(request: &Request) -> &Streams {
    const NONE: &Streams = &Streams { stdin: None, stdout: None, stderr: None };
    match request {
        Request::Create(request) => &request.streams,
        Request::Exec(request) => &request.streams,
        _ => NONE,
    }
}

/// Returns the names of the ports that a request names.
fn port_names(request: &Request) -> Vec<&str> {
    if let Request::Forward { stream, .. } = request {
        return vec![stream];
    }
    let Streams { stdin, stdout, stderr } = streams(request);
    [stdin, stdout, stderr].into_iter().filter_map(|name| name.as_deref()).collect()
}
