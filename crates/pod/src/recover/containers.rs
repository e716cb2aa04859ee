//! Containers after a restart.
//!
//! | record | monitor | kernel | becomes |
//! |---|---|---|---|
//! | creating | any | any | taken back |
//! | exited | any | any | exited |
//! | created … running | holds it | | what the monitor says |
//! | running | knows nothing | pid with that start time lives | running, handed to the monitor |
//! | created … running | knows nothing | gone | exited, code unknown |

use std::sync::Arc;

use monitor_api::{Attachments, HeldHooks, Holding, HoldingState, LogOptions, Role};
use rustix::process::{Signal, pidfd_send_signal};

use super::Found;
use crate::{
    Error, clock,
    container::{
        Container, ContainerMetadata, ContainerPhase, ContainerRecord, end, prepare, remove::take_away, stdio,
    },
    engine::{Inner, name_of},
    monitor::Held,
    process,
    state::{Kind, Loaded},
};

pub(super) async fn load(engine: &Arc<Inner>, found: &mut Found) -> Result<(), Error> {
    let loaded: Vec<Loaded<ContainerMetadata, ContainerRecord>> = engine.records.load(Kind::Container)?;
    for Loaded { metadata, status } in loaded {
        let container = Arc::new(Container::new(metadata, status.unwrap_or_default()));
        let id = container.id().to_owned();
        engine.insert_container(Arc::clone(&container));
        let held = found.objects.remove(&id);
        // Who it is, for lists: read once.
        let _ = container.process(&engine.records);
        if let Err(error) = restore(engine, &container, held).await {
            tracing::warn!("restore container {id}: {error}");
        }
    }
    Ok(())
}

async fn restore(
    engine: &Arc<Inner>,
    container: &Arc<Container>,
    held: Option<(Holding, Attachments)>,
) -> Result<(), Error> {
    let record = container.record();
    let holding = held.map(|(holding, mut files)| {
        push_filter(engine, container, &mut files);
        engine.monitor.custody().hold(Held::new(holding.clone(), files));
        holding
    });
    if record.phase == ContainerPhase::Creating || engine.sandbox(&container.metadata.sandbox).is_err() {
        return take_away(engine, container).await;
    }
    engine.container_names.made(name_of(container), container.id().to_owned());
    match (record.phase, holding) {
        (ContainerPhase::Exited, _) => Ok(()),
        (ContainerPhase::Created, None) if record.refused.is_some() => Ok(()),
        (_, Some(holding)) => as_held(engine, container, holding),
        (phase, None) => alone(engine, container, phase).await,
    }
}

/// A monitor that takes over must know the filter, or it refuses commands.
fn push_filter(engine: &Inner, container: &Container, files: &mut Attachments) {
    match prepare::filter(engine, container.config()) {
        Ok(filter) => filter.into_iter().for_each(|filter| files.push(Role::Seccomp, filter)),
        Err(error) => tracing::warn!("container {}: {error}", container.id()),
    }
}

fn as_held(engine: &Inner, container: &Container, holding: Holding) -> Result<(), Error> {
    container.update(&engine.records, |record| {
        (record.pid, record.start_time) = (holding.pid, holding.start_time);
        match holding.state {
            HoldingState::Exited(status) => end::finish(record, &status),
            HoldingState::Running => {
                record.phase = ContainerPhase::Running;
                record.enter("running");
                if record.started_at == 0 {
                    record.started_at = clock::now();
                }
            }
            _ => {
                record.phase = ContainerPhase::Created;
                record.enter("created");
            }
        }
        true
    })
}

/// Both processes were gone: the kernel is asked.
async fn alone(engine: &Arc<Inner>, container: &Arc<Container>, phase: ContainerPhase) -> Result<(), Error> {
    let record = container.record();
    let Some(pidfd) = process::find(record.pid, record.start_time) else {
        return end::ended(engine, container, end::unseen(None));
    };
    if phase != ContainerPhase::Running {
        // Its gate is lost, it can never run.
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        return end::ended(engine, container, end::unseen(None));
    }
    let folder = engine.records.folder(Kind::Container, container.id());
    let mut files = stdio::Stdio::again(&folder, container.config());
    files.push(Role::Pidfd, pidfd);
    push_filter(engine, container, &mut files);
    if let Some(path) = &container.metadata.log_path {
        files.push(Role::Log, stdio::open_log(path)?);
    }
    let holding = Holding {
        hooks: container
            .spec(&engine.records)
            .ok()
            .and_then(|spec| HeldHooks::of(&spec, container.id(), &folder.to_string_lossy())),
        id: container.id().to_owned(),
        sandbox: container.metadata.sandbox.clone(),
        cgroup: container.metadata.cgroup.clone(),
        pid: record.pid,
        start_time: record.start_time,
        log: LogOptions { line_max: engine.config.log_line_max },
        state: HoldingState::Running,
    };
    engine.monitor.adopt(Held::new(holding, files)).await
}
