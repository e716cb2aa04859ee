//! Recovery of containers after a restart.
//!
//! | record | monitor | kernel | result |
//! |---|---|---|---|
//! | creating | any | any | rolled back |
//! | exited | any | any | exited |
//! | created … running | holds it | | the state that the monitor reports |
//! | created … running | does not know it | a process with that pid and start time lives and executed its program | running, handed to the monitor |
//! | created … running | does not know it | gone, or never executed its program | exited, exit code unknown |

use std::{
    io,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use monitor_api::{Attachments, ContainerDescription, Holding, HoldingState, LogOptions, PendingHooks, Role};
use rustix::{
    fd::OwnedFd,
    process::{Signal, pidfd_send_signal},
};
use tokio::task::JoinHandle;

use super::sandboxes;
use crate::{
    ContainerId, Error, ErrorKind, clock,
    container::{
        driver::Driver,
        exit,
        prepare::{self, preopened_files},
        remove::remove_locked,
        runtime, shim, vm,
    },
    error::failed,
    monitor::{HeldObject, Inventory},
    parts::Parts,
    process,
    stdio::{
        Stdio,
        log_file::{self, LogFile},
    },
    store::{
        Container, ContainerMetadata, ContainerPhase, ContainerRecord, LoadedRecord, broken_container, unknown_exit,
    },
};

/// How long the start waits in total for FIFOs that no process keeps locked and that are not open after two seconds.
const SLOW_FIFOS: Duration = Duration::from_secs(10);
/// How long a runtime that outlived daemon and monitor may take to start a container.
const START_PATIENCE: Duration = Duration::from_secs(2);

/// The records of all containers.
pub(super) type Records = Vec<LoadedRecord<ContainerId, ContainerMetadata, ContainerRecord>>;

/// Loads all containers. Those whose creation had not completed are rolled back by the returned tasks.
pub(super) async fn load(parts: &Arc<Parts>, loaded: Records, inventory: &mut Inventory) -> Vec<JoinHandle<()>> {
    let mut rollbacks = Vec::new();
    let slow_until = Instant::now() + SLOW_FIFOS;
    for LoadedRecord { id, metadata, status } in loaded {
        let held = inventory.objects.remove(id.as_str());
        let (metadata, record) = match (metadata, status) {
            (Ok(metadata), Ok(status)) if metadata.id == id => (metadata, status.unwrap_or_default()),
            (Ok(metadata), Err(why)) if metadata.id == id => {
                tracing::warn!("read the status of container {id}: {why}; its state is determined from the kernel");
                // The monitor knows its process. If it does not hold the container, the exit code is lost.
                (metadata, ContainerRecord { phase: ContainerPhase::Created, ..ContainerRecord::default() })
            }
            (metadata, _) => {
                let why =
                    metadata.map_or_else(|why| why, |_| Error::internal("its metadata belongs to another container"));
                tracing::warn!("read the record of container {id}: {why}");
                broken_container(&id, held.as_ref(), &why)
            }
        };
        let unknown_user = record.user.is_none() && record.phase != ContainerPhase::Creating;
        let container = Arc::new(Container::new(metadata, record));
        parts.registry.insert_container(Arc::clone(&container));
        if unknown_user {
            // Its record was written by a daemon that stored the user only in the specification.
            container.load_user(&parts.registry.records);
        }
        match restore(parts, &container, held, slow_until).await {
            Ok(task) => rollbacks.extend(task),
            Err(error) => tracing::warn!("restore container {id}: {error}"),
        }
    }
    rollbacks
}

/// Rolls the creation of a container back in a task: a process that hangs in the kernel must not delay the start of the
/// daemon.
fn roll_back(parts: &Arc<Parts>, container: &Arc<Container>) -> JoinHandle<()> {
    let (parts, container) = (Arc::clone(parts), Arc::clone(container));
    let (busy, creation) = (Arc::clone(&container.busy).try_lock_owned(), container.creation.begin());
    offload::spawn(async move {
        let (_busy, _creation) = (busy, creation);
        if let Err(error) = remove_locked(&parts, &container).await {
            tracing::warn!("roll back container {}: {error}", container.id());
        }
    })
}

async fn restore(
    parts: &Arc<Parts>,
    container: &Arc<Container>,
    holding: Option<Holding>,
    slow_until: Instant,
) -> Result<Option<JoinHandle<()>>, Error> {
    let record = container.record();
    if holding.is_some()
        && let Some(filter) = filter(parts, container)
    {
        parts.monitor.custody().replace(container.id().as_str(), Role::Seccomp, Some(filter));
    }
    if record.phase == ContainerPhase::Creating {
        return Ok(Some(roll_back(parts, container)));
    }
    if parts.registry.sandbox(&container.metadata.sandbox).is_err() && !container.metadata.sandbox.is_unknown() {
        sandboxes::add_missing(parts, &container.metadata.sandbox);
    }
    if record.phase != ContainerPhase::Exited && record.broken.is_none() {
        parts.registry.container_names.assign(container.name(), container.id().clone());
    }
    let driver = Driver::of(container);
    let restored = match (record.phase, holding) {
        (ContainerPhase::Exited, _) => Ok(()),
        (ContainerPhase::Created, None) if record.refused.is_some() => Ok(()),
        (_, Some(holding)) => {
            // The daemon that handed it over died before the file system of its log responded.
            if holding.container.log.awaited {
                offload::spawn(continue_log(Arc::downgrade(parts), Arc::clone(container)));
            }
            apply_holding(parts, container, holding)
        }
        (_, None) if driver != Driver::Monitor => adopt_external(parts, container, slow_until).await,
        (_, None) => recover_unheld(parts, container, slow_until).await,
    };
    if container.record().phase != ContainerPhase::Exited {
        match driver {
            Driver::Monitor => {}
            Driver::Shim => shim::resume(parts, container),
            Driver::Vm => vm::watch(parts, container),
        }
    }
    restored.map(|()| None)
}

/// Returns the seccomp filter of a container. A monitor that takes over needs it, or it refuses exec.
fn filter(parts: &Parts, container: &Container) -> Option<OwnedFd> {
    let filter = prepare::filter(parts, container);
    filter.inspect_err(|error| tracing::warn!("container {}: {error}", container.id())).ok().flatten()
}

fn apply_holding(parts: &Parts, container: &Container, holding: Holding) -> Result<(), Error> {
    parts.registry.update_container(container, |record| {
        let is_external = holding.container.external;
        let process = (holding.container.pid, holding.container.start_time);
        let same_process = is_external || (record.pid, record.start_time) == process;
        if !is_external {
            (record.pid, record.start_time) = process;
        }
        match holding.state {
            HoldingState::Exited(status) => record.mark_exited(&status),
            // The record is up to date: nothing is written.
            HoldingState::Running if same_process && is_running(record) => return false,
            HoldingState::Running => mark_running(record),
            _ if same_process && record.phase == ContainerPhase::Created => return false,
            _ => {
                record.phase = ContainerPhase::Created;
                record.enter("created");
            }
        }
        true
    })
}

/// Hands a log to the monitor when its file system, which did not respond at first, responds. Until then the output of
/// the container stays in its FIFOs.
async fn continue_log(parts: Weak<Parts>, container: Arc<Container>) {
    const PAUSE: Duration = Duration::from_secs(1);
    const PAUSE_MAX: Duration = Duration::from_secs(30);
    let mut pause = PAUSE;
    loop {
        let Some(parts) = parts.upgrade() else { return };
        let continued = match preopened_files::open_log(&parts, &container).await {
            Ok(Some(log)) => parts.monitor.reopen_log(container.id().as_str(), log).await,
            Ok(None) => return,
            Err(error) => Err(error),
        };
        match continued {
            Ok(()) => {
                return tracing::info!(
                    container = container.id().as_str(),
                    "the log is continued: its file system responds again"
                );
            }
            Err(_) if !parts.monitor.custody().holds(container.id().as_str()) => return,
            Err(error) => {
                tracing::warn!(
                    container = container.id().as_str(),
                    "continue the log: {error}; retrying in {} s",
                    pause.as_secs()
                )
            }
        }
        drop(parts);
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

fn is_running(record: &ContainerRecord) -> bool {
    record.phase == ContainerPhase::Running && record.started_at != 0
}

fn mark_running(record: &mut ContainerRecord) {
    record.phase = ContainerPhase::Running;
    record.enter("running");
    if record.started_at == 0 {
        record.started_at = clock::now();
    }
}

/// Returns the process of a container if it has executed its program. A process that still waits to be started is
/// killed, because the other end of its start gate is lost.
fn running_process(metadata: &ContainerMetadata, record: &ContainerRecord) -> io::Result<Option<OwnedFd>> {
    let Some(pidfd) = process::try_find(record.pid, record.start_time)? else { return Ok(None) };
    let executed = match &metadata.runtime {
        None => process::has_executed(record.pid)?,
        // The process of an OCI runtime waits for `start` of the runtime.
        Some(_) => Some(true),
    };
    if executed == Some(false) {
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
    Ok((executed == Some(true)).then_some(pidfd))
}

/// Like [`running_process`], but retries for two seconds if the kernel lacks memory or descriptors: the container must
/// not be given up because of that.
async fn find_running_process(container: &Container) -> Result<Option<OwnedFd>, Error> {
    const PAUSE: Duration = Duration::from_millis(100);
    const TRIES: u32 = 20;
    let mut tries = 0;
    loop {
        match running_process(&container.metadata, &container.record()) {
            Ok(process) => return Ok(process),
            Err(cause) if tries == TRIES => return Err(failed("find its process")(cause)),
            Err(_) => tries += 1,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Opens the log of a container for a monitor. Without a log the output is lost, so temporary errors are retried.
async fn open_log(parts: &Parts, container: &Arc<Container>) -> Result<Option<Attachments>, Error> {
    const PAUSE: Duration = Duration::from_millis(10);
    const TRIES: u32 = 3;
    let mut tries = 1;
    loop {
        let log = preopened_files::open_log_at_once(parts, container).await;
        match log.and_then(|log| log.as_ref().map(LogFile::duplicate_paths).transpose()) {
            Err(error) if error.kind != ErrorKind::DeadlineExceeded && tries < TRIES => tries += 1,
            outcome => return outcome,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Determines whether the interrupted start of an OCI runtime has started the container. If not, it can be started
/// again.
async fn finish_start(parts: &Parts, container: &Container) {
    let has_started = runtime::has_started(container, START_PATIENCE).await;
    parts.registry.update_container_anyway(container, |record| {
        match has_started {
            true => mark_running(record),
            false => {
                record.phase = ContainerPhase::Created;
                record.enter("created");
            }
        }
        true
    });
}

/// Adds the log of a container to the descriptors for a monitor. Returns whether its file system does not respond.
async fn push_log(parts: &Arc<Parts>, container: &Arc<Container>, files: &mut Attachments) -> bool {
    let mut continues_later = false;
    match open_log(parts, container).await {
        Ok(Some(log)) => log.into_iter().for_each(|(role, file)| files.push(role, file)),
        Ok(None) => {}
        // The container itself may have caused the error, so it must not be killed for it: only its log ends.
        Err(error) => {
            tracing::warn!(container = container.id().as_str(), "{error}");
            continues_later = error.kind == ErrorKind::DeadlineExceeded;
        }
    }
    continues_later
}

/// Hands the output and the cgroup of a container of a shim or guest to the monitor, after both processes were gone. Its
/// state is then that of its shim or guest.
async fn adopt_external(parts: &Arc<Parts>, container: &Arc<Container>, slow_until: Instant) -> Result<(), Error> {
    let record = container.record();
    let directory = parts.registry.records.directory(container.id());
    let user = Driver::of(container).stream_user();
    let mut files = Stdio::reopen(&directory, container.config(), user, &container.pipe_calls, slow_until).await;
    let continues_later = push_log(parts, container, &mut files).await;
    let description = ContainerDescription {
        id: container.id().to_string(),
        sandbox: container.metadata.sandbox.to_string(),
        cgroup: container.cgroup(),
        log: LogOptions { awaited: continues_later, ..log_file::options(&parts.node.config, &container.metadata) },
        user_namespace: Some(false),
        external: true,
        ..ContainerDescription::default()
    };
    let state = match record.phase {
        ContainerPhase::Running => HoldingState::Running,
        _ => HoldingState::Created,
    };
    parts.monitor.adopt(HeldObject::new(Holding { container: description, state }, files)).await?;
    if continues_later {
        offload::spawn(continue_log(Arc::downgrade(parts), Arc::clone(container)));
    }
    Ok(())
}

/// Recovers a container after both processes were gone, from the state of the kernel. The record may be outdated: if
/// the tmpfs was full, a running container may be on record as not started yet.
async fn recover_unheld(parts: &Arc<Parts>, container: &Arc<Container>, slow_until: Instant) -> Result<(), Error> {
    if container.metadata.runtime.is_some() && container.record().phase == ContainerPhase::Starting {
        finish_start(parts, container).await;
    }
    let record = container.record();
    let Some(pidfd) = find_running_process(container).await? else {
        // No start is in progress anymore that would record its outcome first.
        parts.registry.update_container_anyway(container, |record| {
            let starts = record.phase == ContainerPhase::Starting;
            if starts {
                record.phase = ContainerPhase::Created;
            }
            starts
        });
        return exit::handle_exit(parts, container, record.early_exit.clone().unwrap_or_else(unknown_exit));
    };
    let waits = container.metadata.runtime.is_some() && record.phase == ContainerPhase::Created;
    parts.registry.update_container_anyway(container, |record| {
        let stale = record.phase != ContainerPhase::Running && !waits;
        if stale {
            mark_running(record);
        }
        stale
    });
    let directory = parts.registry.records.directory(container.id());
    let user = Driver::of(container).stream_user();
    let mut files = Stdio::reopen(&directory, container.config(), user, &container.pipe_calls, slow_until).await;
    files.push(Role::Pidfd, pidfd);
    filter(parts, container).into_iter().for_each(|filter| files.push(Role::Seccomp, filter));
    let continues_later = push_log(parts, container, &mut files).await;
    let spec = container.spec(&parts.registry.records).ok();
    let runtime = container.metadata.runtime.as_ref().map(|runtime| Box::new(runtime.command.clone()));
    let description = ContainerDescription {
        user_namespace: spec.as_ref().map(|spec| spec.has_namespace(oci::NamespaceType::User)),
        hooks: spec
            .filter(|_| runtime.is_none())
            .and_then(|spec| PendingHooks::from_spec(&spec, container.id().as_str(), &directory.to_string_lossy())),
        id: container.id().to_string(),
        sandbox: container.metadata.sandbox.to_string(),
        cgroup: container.cgroup(),
        pid: record.pid,
        start_time: record.start_time,
        log: LogOptions { awaited: continues_later, ..log_file::options(&parts.node.config, &container.metadata) },
        runtime,
        external: false,
    };
    let state = if waits { HoldingState::Created } else { HoldingState::Running };
    let holding = Holding { container: description, state };
    parts.monitor.adopt(HeldObject::new(holding, files)).await?;
    if continues_later {
        offload::spawn(continue_log(Arc::downgrade(parts), Arc::clone(container)));
    }
    Ok(())
}
