//! `CreateContainer`: recorded, prepared ([`super::prepare`]), made by the monitor; a failure takes all back.

use std::{path::PathBuf, sync::Arc};

use image::Image;
use monitor_api::{Create, LogOptions, Role};
use oci::NamespaceType;
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
};
use tokio::sync::OwnedMutexGuard;
use tracing::{Instrument, debug_span};

use super::{
    Container, ContainerConfig, ContainerMetadata, ContainerPhase, ContainerRecord, end, image_volume,
    prepare::{self, Prepared},
    remove::take_away,
};
use crate::{
    Error, ErrorKind, PidMode, clock,
    engine::{ContainerName, Inner, blocking},
    error::failed,
    failpoint, identifier,
    monitor::Made,
    names::Claim,
    process,
    sandbox::{Sandbox, pid_namespace},
    state::Kind,
    undo::with_undo,
};

const SIGTERM: i32 = 15;

/// Joins an operation of the same name, returns an equal container that waits for its start, or makes it.
pub(crate) async fn create(engine: &Arc<Inner>, sandbox: &str, config: ContainerConfig) -> Result<String, Error> {
    let sandbox = engine.sandbox(sandbox)?;
    let told = format!("create container {} in pod {}", config.name, sandbox.id());
    let name: ContainerName = (sandbox.id().to_owned(), config.name.clone(), config.attempt);
    let config = Arc::new(config);
    let make = {
        let (engine, name, config) = (Arc::clone(engine), name.clone(), Arc::clone(&config));
        move || async move {
            let made = make(&engine, &sandbox, config).instrument(debug_span!("create_container")).await;
            match &made {
                Ok(id) => engine.container_names.made(name, id.clone()),
                Err(_) => engine.container_names.free(&name),
            }
            made
        }
    };
    let outcome = match engine.container_names.claim(&name, make) {
        Claim::Making(running) => running.await,
        Claim::Made(id) => same(engine, id, &config),
    };
    outcome.map_err(|e| image_volume::lead(e.during(told)))
}

/// A caller that repeats itself gets what it has; another container of that name is a conflict.
fn same(engine: &Inner, id: String, config: &ContainerConfig) -> Result<String, Error> {
    let there = engine.container(&id)?;
    let json = |config: &ContainerConfig| serde_json::to_value(config).ok();
    if there.record().phase == ContainerPhase::Created && json(there.config()) == json(config) {
        return Ok(id);
    }
    Err(Error::new(
        ErrorKind::AlreadyExists,
        format!("attempt {} is container {id}; remove it, or ask for another attempt", config.attempt),
    ))
}

async fn make(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>, config: Arc<ContainerConfig>) -> Result<String, Error> {
    let _making = engine.making.read().await;
    let _open = sandbox.gate.read().await;
    if config.security.privileged && !sandbox.config().privileged {
        return Err(Error::invalid(
            "config.linux.security_context.privileged: the pod was not made for privileged containers",
        ));
    }
    if !sandbox.is_ready() {
        return Err(Error::state(format!("the pod is not ready: {}", sandbox.record().stage)));
    }
    let image = engine.images.find(&config.image)?;
    let image = image.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("image {:?} is not here; pull it first", config.image))
    })?;
    let (container, _alone) = record(engine, sandbox, config, &image)?;
    match set_up(engine, sandbox, &container, &image).await {
        Ok(()) => Ok(container.id().to_owned()),
        Err(error) => Err(with_undo(error, take_away(engine, &container).await)),
    }
}

/// Writes it into the ledger, and locks it: remove waits until it is made or gone.
fn record(
    engine: &Inner,
    sandbox: &Sandbox,
    config: Arc<ContainerConfig>,
    image: &Image,
) -> Result<(Arc<Container>, OwnedMutexGuard<()>), Error> {
    let id = identifier::fresh()?;
    let image_signal = image.config.stop_signal.as_deref().and_then(prepare::signal);
    let metadata = ContainerMetadata {
        cgroup: format!("{}/{id}", engine.cgroup_of(sandbox)),
        sandbox: sandbox.id().to_owned(),
        image_id: image.id.clone(),
        created_at: clock::now(),
        log_path: log_path(sandbox, &config),
        stop_signal: config.stop_signal.or(image_signal).unwrap_or(SIGTERM),
        config,
        id,
    };
    engine.records.create(Kind::Container, &metadata.id, &metadata)?;
    let container = Arc::new(Container::new(metadata, ContainerRecord::default()));
    let alone = Arc::clone(&container.busy).try_lock_owned().map_err(failed("lock a new container"))?;
    engine.insert_container(Arc::clone(&container));
    failpoint::reach("container.recorded");
    Ok((container, alone))
}

fn log_path(sandbox: &Sandbox, config: &ContainerConfig) -> Option<PathBuf> {
    let log = config.log_path.as_ref().filter(|path| !path.as_os_str().is_empty())?;
    let folder = sandbox.config().log_directory.as_ref();
    match folder {
        Some(folder) => Some(folder.join(log)),
        None => log.is_absolute().then(|| log.clone()),
    }
}

async fn set_up(
    engine: &Arc<Inner>,
    sandbox: &Arc<Sandbox>,
    container: &Arc<Container>,
    image: &Image,
) -> Result<(), Error> {
    let pid = pid_namespace_of(engine, sandbox, container.config()).await?;
    let prepared = {
        let (engine, sandbox, container, image) =
            (Arc::clone(engine), Arc::clone(sandbox), Arc::clone(container), image.clone());
        blocking(move || prepare::prepare(&engine, &sandbox, &container, &image))
    };
    let Prepared { spec, mut send, keep } = prepared.instrument(debug_span!("prepare")).await?;
    failpoint::reach("container.prepared");
    if let Some(pid) = pid {
        send.push(Role::Namespace(NamespaceType::Pid), pid);
    }
    let create = Create {
        container: container.id().to_owned(),
        sandbox: sandbox.id().to_owned(),
        spec,
        log: LogOptions { line_max: engine.config.log_line_max },
    };
    let made = engine.monitor.create(create, send, keep).instrument(debug_span!("monitor")).await?;
    failpoint::reach("container.made");
    container.update(&engine.records, |record| {
        record.phase = ContainerPhase::Created;
        record.stage = "created".into();
        match made {
            Made::Waiting(made) => {
                for warning in &made.warnings {
                    tracing::info!(container = container.id(), "{warning}");
                }
                (record.pid, record.start_time) = (made.pid, made.start_time);
            }
            // Told at its start, as callers expect of a command that is not in the image.
            Made::Refused(why) => record.refused = Some(why),
        }
        if let Some(status) = record.early_end.take() {
            end::finish(record, &status);
        }
        true
    })
}

/// The PID namespace to join: the pod's, or that of another container.
async fn pid_namespace_of(
    engine: &Inner,
    sandbox: &Arc<Sandbox>,
    config: &ContainerConfig,
) -> Result<Option<OwnedFd>, Error> {
    if let Some(target) = &config.security.target {
        let target = engine.container(target)?;
        let record = target.record();
        let refuse =
            || Error::state(format!("container {}, whose processes are to be seen, does not run", target.id()));
        let _alive = process::find(record.pid, record.start_time).ok_or_else(refuse)?;
        let path = format!("/proc/{}/ns/pid", record.pid);
        let namespace = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        return namespace.map(Some).map_err(failed(format_args!("open {path}")));
    }
    match config.security.pid {
        PidMode::Pod => pid_namespace(engine, sandbox).await.map(Some),
        PidMode::Container | PidMode::Node => Ok(None),
    }
}
