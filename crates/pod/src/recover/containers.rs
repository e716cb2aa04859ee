//! Containers after a restart.
//!
//! | record | monitor | kernel | becomes |
//! |---|---|---|---|
//! | creating | any | any | taken back |
//! | exited | any | any | exited |
//! | created … running | holds it | | what the monitor says |
//! | created … running | knows nothing | pid with that start time lives and executed its program | running, handed to the monitor |
//! | created … running | knows nothing | gone, or never executed its program | exited, code unknown |

use std::{
    io,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use monitor_api::{HeldHooks, Holding, HoldingState, LogOptions, Role};
use rustix::{
    fd::OwnedFd,
    process::{Signal, pidfd_send_signal},
};
use tokio::task::JoinHandle;

use super::sandboxes;
use crate::{
    Error, ErrorKind, clock,
    container::{
        Container, ContainerMetadata, ContainerPhase, ContainerRecord, broken, end, log_file, outside_files, prepare,
        remove::take_away, stdio,
    },
    engine::{Inner, name_of},
    error::failed,
    monitor::{Held, Inventory},
    process,
    state::{Kind, Loaded},
};

/// How long the start waits in all for FIFOs that nobody keeps locked and that are not open after two seconds.
const SLOW: Duration = Duration::from_secs(10);

/// What is on record of all containers.
pub(super) type Records = Vec<Loaded<ContainerMetadata, ContainerRecord>>;

/// Those that were not made yet are taken back by tasks of their own.
pub(super) async fn load(engine: &Arc<Inner>, loaded: Records, found: &mut Inventory) -> Vec<JoinHandle<()>> {
    let mut begun = Vec::new();
    let slow_until = Instant::now() + SLOW;
    for Loaded { id, metadata, status } in loaded {
        let held = found.objects.remove(&id);
        let (metadata, record) = match (metadata, status) {
            (Ok(metadata), Ok(status)) if metadata.id == id => (metadata, status.unwrap_or_default()),
            (Ok(metadata), Err(why)) if metadata.id == id => {
                tracing::warn!("the status of container {id} cannot be read, the kernel is asked: {why}");
                // Its process is the monitor's to tell; without it nobody knows how it ended.
                (metadata, ContainerRecord { phase: ContainerPhase::Created, ..ContainerRecord::default() })
            }
            (metadata, _) => {
                let why = metadata.map_or_else(|why| why, |_| Error::internal("its metadata is of another container"));
                tracing::warn!("the record of container {id} cannot be read: {why}");
                broken(&id, held.as_ref(), &why)
            }
        };
        let unknown_user = record.user.is_none() && record.phase != ContainerPhase::Creating;
        let container = Arc::new(Container::new(metadata, record));
        engine.insert_container(Arc::clone(&container));
        if unknown_user {
            // Its record was written by a daemon that kept this in the specification alone.
            container.find_user(&engine.records);
        }
        match restore(engine, &container, held, slow_until).await {
            Ok(task) => begun.extend(task),
            Err(error) => tracing::warn!("restore container {id}: {error}"),
        }
    }
    begun
}

/// As a task: what hangs in the kernel must not keep the daemon from its start.
fn take_back(engine: &Arc<Inner>, container: &Arc<Container>) -> JoinHandle<()> {
    let (engine, container) = (Arc::clone(engine), Arc::clone(container));
    let (alone, making) = (Arc::clone(&container.busy).try_lock_owned(), container.making.begin());
    offload::spawn(async move {
        let (_alone, _making) = (alone, making);
        if let Err(error) = take_away(&engine, &container).await {
            tracing::warn!("take back container {}: {error}", container.id());
        }
    })
}

async fn restore(
    engine: &Arc<Inner>,
    container: &Arc<Container>,
    holding: Option<Holding>,
    slow_until: Instant,
) -> Result<Option<JoinHandle<()>>, Error> {
    let record = container.record();
    if holding.is_some()
        && let Some(filter) = filter(engine, container)
    {
        engine.monitor.custody().replace(container.id(), Role::Seccomp, Some(filter));
    }
    if record.phase == ContainerPhase::Creating {
        return Ok(Some(take_back(engine, container)));
    }
    if engine.sandbox(&container.metadata.sandbox).is_err() && !container.metadata.sandbox.is_empty() {
        sandboxes::missing(engine, &container.metadata.sandbox);
    }
    if record.phase != ContainerPhase::Exited && record.broken.is_none() {
        engine.container_names.made(name_of(container), container.id().to_owned());
    }
    let restored = match (record.phase, holding) {
        (ContainerPhase::Exited, _) => Ok(()),
        (ContainerPhase::Created, None) if record.refused.is_some() => Ok(()),
        (_, Some(holding)) => {
            // The daemon that handed it over died before its log's file system answered.
            if holding.log.awaited {
                offload::spawn(continue_log(Arc::downgrade(engine), Arc::clone(container)));
            }
            as_held(engine, container, holding)
        }
        (_, None) => alone(engine, container, slow_until).await,
    };
    restored.map(|()| None)
}

/// A monitor that takes over must know the filter, or it refuses commands.
fn filter(engine: &Inner, container: &Container) -> Option<OwnedFd> {
    let filter = prepare::filter(engine, container.config());
    filter.inspect_err(|error| tracing::warn!("container {}: {error}", container.id())).ok().flatten()
}

fn as_held(engine: &Inner, container: &Container, holding: Holding) -> Result<(), Error> {
    container.update(&engine.records, |record| {
        let same_process = (record.pid, record.start_time) == (holding.pid, holding.start_time);
        (record.pid, record.start_time) = (holding.pid, holding.start_time);
        match holding.state {
            HoldingState::Exited(status) => end::finish(record, &status),
            // As it is on record already: nothing is written.
            HoldingState::Running if same_process && is_running(record) => return false,
            HoldingState::Running => run(record),
            _ if same_process && record.phase == ContainerPhase::Created => return false,
            _ => {
                record.phase = ContainerPhase::Created;
                record.enter("created");
            }
        }
        true
    })
}

/// Hands a log to the monitor whose file system did not answer at once, as soon as it does. Until then the output of
/// the container stays in its FIFOs.
async fn continue_log(engine: Weak<Inner>, container: Arc<Container>) {
    const PAUSE: Duration = Duration::from_secs(1);
    const PAUSE_MAX: Duration = Duration::from_secs(30);
    let mut pause = PAUSE;
    loop {
        let Some(engine) = engine.upgrade() else { return };
        let continued = match outside_files::open_log(&engine, &container).await {
            Ok(Some(log)) => engine.monitor.reopen_log(container.id(), log).await,
            Ok(None) => return,
            Err(error) => Err(error),
        };
        match continued {
            Ok(()) => {
                return tracing::info!(
                    container = container.id(),
                    "the log is continued: its file system answers again"
                );
            }
            Err(_) if !engine.monitor.custody().holds(container.id()) => return,
            Err(error) => {
                tracing::warn!(container = container.id(), "continue the log, again in {} s: {error}", pause.as_secs())
            }
        }
        drop(engine);
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

fn is_running(record: &ContainerRecord) -> bool {
    record.phase == ContainerPhase::Running && record.started_at != 0
}

fn run(record: &mut ContainerRecord) {
    record.phase = ContainerPhase::Running;
    record.enter("running");
    if record.started_at == 0 {
        record.started_at = clock::now();
    }
}

/// Its process, if its program was executed. One that still waits for its start is killed: its gate is lost.
fn running(record: &ContainerRecord) -> io::Result<Option<OwnedFd>> {
    let Some(pidfd) = process::look_for(record.pid, record.start_time)? else { return Ok(None) };
    let executed = process::has_executed(record.pid)?;
    if executed == Some(false) {
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
    Ok((executed == Some(true)).then_some(pidfd))
}

/// The same. What the kernel could not say for want of memory or descriptors is asked again for two seconds: a
/// container is not given up because of that.
async fn find_running(record: &ContainerRecord) -> Result<Option<OwnedFd>, Error> {
    const PAUSE: Duration = Duration::from_millis(100);
    const TRIES: u32 = 20;
    let mut tries = 0;
    loop {
        match running(record) {
            Ok(found) => return Ok(found),
            Err(cause) if tries == TRIES => return Err(failed("look for its process")(cause)),
            Err(_) => tries += 1,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Its log, as a monitor is given it. Without one, what it writes is lost, so an error of a moment is not the answer.
async fn log_again(engine: &Inner, container: &Arc<Container>) -> Result<Option<OwnedFd>, Error> {
    const PAUSE: Duration = Duration::from_millis(10);
    const TRIES: u32 = 3;
    let mut tries = 1;
    loop {
        let log = outside_files::open_log_at_once(engine, container).await;
        match log.and_then(|log| log.as_ref().map(log_file::place).transpose()) {
            Err(error) if error.kind != ErrorKind::DeadlineExceeded && tries < TRIES => tries += 1,
            outcome => return outcome,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Both processes were gone: the kernel is asked. The record may be older than what it is about: on a full tmpfs a
/// container ran whose status still says that it was to be started.
async fn alone(engine: &Arc<Inner>, container: &Arc<Container>, slow_until: Instant) -> Result<(), Error> {
    let record = container.record();
    let Some(pidfd) = find_running(&record).await? else {
        // Nobody is left who starts it and would say first how that went.
        container.update_anyway(&engine.records, |record| {
            let starts = record.phase == ContainerPhase::Starting;
            if starts {
                record.phase = ContainerPhase::Created;
            }
            starts
        });
        return end::ended(engine, container, record.early_end.clone().unwrap_or_else(end::unseen));
    };
    container.update_anyway(&engine.records, |record| {
        let stale = record.phase != ContainerPhase::Running;
        if stale {
            run(record);
        }
        stale
    });
    let directory = engine.records.directory(Kind::Container, container.id());
    let mut files = stdio::Stdio::again(&directory, container.config(), &container.pipe_calls, slow_until).await;
    files.push(Role::Pidfd, pidfd);
    filter(engine, container).into_iter().for_each(|filter| files.push(Role::Seccomp, filter));
    let mut continues_later = false;
    match log_again(engine, container).await {
        Ok(Some(log)) => files.push(Role::Log, log),
        Ok(None) => {}
        // What it can have done itself must not end it: only its log does not go on.
        Err(error) => {
            tracing::warn!(container = container.id(), "{error}");
            continues_later = error.kind == ErrorKind::DeadlineExceeded;
        }
    }
    let spec = container.spec(&engine.records).ok();
    let holding = Holding {
        user_namespace: spec.as_ref().map(|spec| spec.has_namespace(oci::NamespaceType::User)),
        hooks: spec.and_then(|spec| HeldHooks::of(&spec, container.id(), &directory.to_string_lossy())),
        id: container.id().to_owned(),
        sandbox: container.metadata.sandbox.clone(),
        cgroup: container.metadata.cgroup.clone(),
        pid: record.pid,
        start_time: record.start_time,
        log: LogOptions { line_max: engine.config.log_line_max, awaited: continues_later },
        state: HoldingState::Running,
    };
    engine.monitor.adopt(Held::new(holding, files)).await?;
    if continues_later {
        offload::spawn(continue_log(Arc::downgrade(engine), Arc::clone(container)));
    }
    Ok(())
}
