//! Starts of an OCI runtime whose end no process has reported, because the monitor died in the meantime.

use std::{
    io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use monitor_api::START_LOCK;

use super::leftover_command;
use crate::{
    operation::blocking,
    process,
    store::{Container, ContainerRecord},
};

/// How long the program of a container may take to appear after the end of the `start`: runc and crun end as soon as
/// the process of the container has read from a FIFO, before it executes the program.
const EXECUTED: Duration = Duration::from_secs(1);
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(5);

/// What the process does that a runtime has created.
enum State {
    /// It waits for the `start`.
    Created,
    Started,
    /// It has exited, or is about to.
    Ended,
}

/// Waits until a `start` that outlived the monitor has ended, which is killed after `patience`, and reports whether it
/// has started the container. Then it must not be repeated: runtimes refuse a second start.
pub(crate) async fn has_started(container: &Container, patience: Duration) -> bool {
    let Some(runtime) = &container.metadata.runtime else { return false };
    let (bundle, record) = (runtime.command.bundle.clone(), container.record());
    let work = move || Ok(has_started_in(Path::new(&bundle), &record, patience));
    blocking(work).await.unwrap_or(false)
}

fn has_started_in(bundle: &Path, record: &ContainerRecord, patience: Duration) -> bool {
    leftover_command::end(bundle, patience);
    let was_executed = bundle.join(START_LOCK).exists();
    let begin = Instant::now();
    loop {
        match state(record) {
            Ok(State::Started) => return true,
            Ok(State::Ended) => return was_executed,
            _ if !was_executed || begin.elapsed() > EXECUTED => return false,
            _ => thread::sleep(PAUSE),
        }
    }
}

fn state(record: &ContainerRecord) -> io::Result<State> {
    let program = process::program(record.pid)?;
    // Reused pids have another start time.
    let is_same = process::try_start_time(record.pid)? == Some(record.start_time);
    Ok(match (program, record.created_program) {
        (Some(program), Some(created)) if is_same && program != created => State::Started,
        (None, _) => State::Ended,
        _ if !is_same => State::Ended,
        _ => State::Created,
    })
}
