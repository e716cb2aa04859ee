//! `CreateContainer`: records the container, prepares it ([`super::prepare`]) and has the monitor create it. On failure
//! everything is rolled back.

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
    Container, ContainerConfig, ContainerMetadata, ContainerPhase, ContainerRecord, Security, exit, image_volume,
    preopened_files::PreopenedFiles,
    prepare::{self, Prepared},
    remove::{self, remove_locked},
};
use crate::{
    Error, ErrorKind, PidMode, Signal, annotation, clock,
    creation::CreationGuard,
    engine::{ContainerName, Inner, blocking},
    error::failed,
    failpoint, identifier,
    monitor::CreateOutcome,
    name_registry::Claim,
    process,
    sandbox::{Sandbox, SandboxConfig, has_lost_init, pid_namespace},
    state::Kind,
    undo::with_undo,
};

/// Creates a container, or returns the existing one that has this name.
///
/// | existing container of this name and attempt | equal configuration | different configuration |
/// |---|---|---|
/// | is being created | waits for it and returns its id | waits for it, then as below |
/// | not started yet | returns its id | replaces it: nothing of it has run |
/// | running | returns its id | `AlreadyExists` |
/// | exited | creates a new one and keeps the old one | the same |
pub(crate) async fn create(engine: &Arc<Inner>, sandbox: &str, config: ContainerConfig) -> Result<String, Error> {
    let sandbox = engine.sandbox(sandbox)?;
    let operation = format!("create container {} in pod {}", config.name, sandbox.id());
    let name: ContainerName = (sandbox.id().to_owned(), config.name.clone(), config.attempt);
    let config = Arc::new(config);
    let make = || {
        let (engine, name, config) = (Arc::clone(engine), name.clone(), Arc::clone(&config));
        let sandbox = Arc::clone(&sandbox);
        move || async move {
            let created = create_or_retry(&engine, &sandbox, config).instrument(debug_span!("create_container")).await;
            match &created {
                Ok(id) => engine.container_names.assign(name, id.clone()),
                Err(_) => engine.container_names.abandon(&name),
            }
            created
        }
    };
    let outcome = loop {
        let id = match engine.container_names.claim(&name, make()) {
            Claim::Creating(running) => match running.await {
                Ok(id) => id,
                Err(error) => break Err(error),
            },
            Claim::Existing(id) => id,
        };
        match existing(engine, &id, &config) {
            Existing::Equal => break Ok(id),
            Existing::Exited => engine.container_names.release(&name, &id),
            Existing::NotStarted => match remove::remove(engine, &id).await {
                Ok(()) => engine.container_names.release(&name, &id),
                Err(error) => break Err(error),
            },
            Existing::Running => {
                let attempt = config.attempt;
                let message = format!(
                    "attempt {attempt} exists as container {id}, which is running with another configuration; stop it, \
                     or request another attempt"
                );
                break Err(Error::new(ErrorKind::AlreadyExists, message));
            }
        }
    };
    outcome.map_err(|e| image_volume::reason_first(e.during(operation)))
}

/// The container that already has the requested name.
enum Existing {
    /// It has the requested configuration.
    Equal,
    /// It exited, or it was removed.
    Exited,
    /// It has another configuration, and its program was not started.
    NotStarted,
    /// It has another configuration, and it is running.
    Running,
}

fn existing(engine: &Inner, id: &str, config: &ContainerConfig) -> Existing {
    let Ok(container) = engine.container(id) else { return Existing::Exited };
    let json = |config: &ContainerConfig| serde_json::to_value(config).ok();
    match container.record().phase {
        ContainerPhase::Exited => Existing::Exited,
        _ if json(container.config()) == json(config) => Existing::Equal,
        ContainerPhase::Creating | ContainerPhase::Created => Existing::NotStarted,
        ContainerPhase::Starting | ContainerPhase::Running => Existing::Running,
    }
}

/// Creates the container. Tries again once if the init process of the pod's PID namespace died in the meantime.
async fn create_or_retry(
    engine: &Arc<Inner>,
    sandbox: &Arc<Sandbox>,
    config: Arc<ContainerConfig>,
) -> Result<String, Error> {
    let _creation = engine.creation_lock.read().await;
    let _gate = sandbox.gate.read().await;
    check_against_pod(&config.security, sandbox.config())?;
    if !sandbox.is_ready() {
        return Err(Error::state(format!("the pod is not ready: {}", sandbox.record().stage)));
    }
    let image = engine.images.find(&config.image)?;
    let image = image.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("image {:?} is not present on this node; pull it first", config.image))
    })?;
    let mut namespace = None;
    let mut created = try_create(engine, sandbox, Arc::clone(&config), &image, &mut namespace).await;
    // No process can be cloned into a PID namespace whose init process exits, and only the failed clone shows that it
    // does.
    if let (Err(_), Some(namespace)) = (&created, namespace)
        && has_lost_init(engine, sandbox, namespace).await
    {
        created = try_create(engine, sandbox, config, &image, &mut None).await;
    }
    created.map_err(|CreateFailure { error, container }| {
        container.iter().for_each(|container| engine.failures.add_container(container, &error));
        error
    })
}

/// The error of a failed creation, and the container if it was recorded.
struct CreateFailure {
    error: Error,
    container: Option<Arc<Container>>,
}

/// Creates a container, or rolls everything back. Sets `namespace` to the inode of the pod's PID namespace if the
/// container was to join it.
async fn try_create(
    engine: &Arc<Inner>,
    sandbox: &Arc<Sandbox>,
    config: Arc<ContainerConfig>,
    image: &Image,
    namespace: &mut Option<u64>,
) -> Result<String, CreateFailure> {
    let recorded = record_container(engine, sandbox, config, image);
    let (container, _busy, _creation) = recorded.map_err(|error| CreateFailure { error, container: None })?;
    match set_up(engine, sandbox, &container, image, namespace).await {
        Ok(()) => Ok(container.id().to_owned()),
        Err(error) => {
            let error = with_undo(error, remove_locked(engine, &container).await);
            Err(CreateFailure { error, container: Some(container) })
        }
    }
}

/// Refuses a configuration that exceeds the pod's: a container never gets more of the node than its pod.
fn check_against_pod(security: &Security, pod: &SandboxConfig) -> Result<(), Error> {
    let refuse =
        |field: &str, reason: &str| Err(Error::invalid(format!("config.linux.security_context.{field}: {reason}")));
    if security.privileged && !pod.privileged {
        return refuse("privileged", "the pod is not privileged");
    }
    if security.user_namespace != pod.user_namespace {
        return refuse("namespace_options.userns_options", "must be equal to those of the pod");
    }
    let modes = [("network", security.network, pod.network), ("ipc", security.ipc, pod.ipc)];
    for (name, requested, pods) in modes {
        if let Some(requested) = requested.filter(|requested| *requested != pods) {
            return refuse(
                &format!("namespace_options.{name}"),
                &format!("requested {requested:?}, but the pod has {pods:?}"),
            );
        }
    }
    if security.pid == PidMode::Node && pod.pid != PidMode::Node {
        return refuse("namespace_options.pid", &format!("requested Node, but the pod has {:?}", pod.pid));
    }
    Ok(())
}

/// Writes the container's record and locks the container, so that a removal waits until it is created or rolled back.
fn record_container(
    engine: &Inner,
    sandbox: &Sandbox,
    config: Arc<ContainerConfig>,
    image: &Image,
) -> Result<(Arc<Container>, OwnedMutexGuard<()>, CreationGuard), Error> {
    let id = identifier::generate()?;
    let image_signal = image.config.stop_signal.as_deref().and_then(|text| Signal::parse(text.trim()));
    let metadata = ContainerMetadata {
        cgroup: format!("{}/{id}", engine.cgroup_of(sandbox)),
        sandbox: sandbox.id().to_owned(),
        image_id: image.id.clone(),
        created_at: clock::now(),
        log_path: log_path(sandbox, &config),
        stop_signal: config.stop_signal.or(image_signal.map(Signal::number)).unwrap_or(Signal::TERM.number()),
        config,
        id,
    };
    engine.records.create(Kind::Container, &metadata.id, &metadata)?;
    let container = Arc::new(Container::new(metadata, ContainerRecord::default()));
    let busy = Arc::clone(&container.busy).try_lock_owned().map_err(failed("lock a new container"))?;
    let creation = container.creation.begin();
    engine.insert_container(Arc::clone(&container));
    failpoint::reach("container.recorded");
    Ok((container, busy, creation))
}

fn log_path(sandbox: &Sandbox, config: &ContainerConfig) -> Option<PathBuf> {
    let log = config.log_path.as_ref().filter(|path| !path.as_os_str().is_empty())?;
    let directory = sandbox.config().log_directory.as_ref();
    match directory {
        Some(directory) => Some(directory.join(log)),
        None => log.is_absolute().then(|| log.clone()),
    }
}

async fn set_up(
    engine: &Arc<Inner>,
    sandbox: &Arc<Sandbox>,
    container: &Arc<Container>,
    image: &Image,
    namespace: &mut Option<u64>,
) -> Result<(), Error> {
    if let Some((began, ended)) = engine.pulls.take(&container.metadata.image_id, pulled_since(sandbox, container)) {
        container.part("pull the image".into(), began, ended, "");
    }
    let pid = pid_namespace_of(engine, sandbox, container.config()).await?;
    let joins_pod = container.config().security.target.is_none();
    *namespace =
        pid.as_ref().filter(|_| joins_pod).and_then(|file| rustix::fs::fstat(file).ok()).map(|stat| stat.st_ino);
    container.stage("open volumes and log, prepare the root");
    // Both may wait for a disk, each for a different one, and neither counts against the concurrency limit of mounts.
    let files = PreopenedFiles::open(engine, container).instrument(debug_span!("volumes"));
    let rootfs = {
        let (engine, sandbox, container, image) =
            (Arc::clone(engine), Arc::clone(sandbox), Arc::clone(container), image.clone());
        let disk = engine.images.disk().clone();
        async move { disk.run(move || prepare::rootfs(&engine, &sandbox, &container, &image)).await }
    };
    // Both run to their end even if one fails, so that everything they created can be rolled back afterwards.
    let (files, rootfs) = match tokio::join!(files, rootfs) {
        (Ok(files), Ok(rootfs)) => (files, rootfs),
        (Err(error), rootfs) => {
            // Closing the last descriptor unmounts the root.
            let unmount = move || {
                drop(rootfs);
                Ok(())
            };
            return Err(with_undo(error, blocking(unmount).await));
        }
        (Ok(_), Err(error)) => return Err(error),
    };
    let permit = engine.concurrency.mount().await?;
    container.stage("prepare mounts and streams");
    let prepared = {
        let (engine, sandbox, container, image) =
            (Arc::clone(engine), Arc::clone(sandbox), Arc::clone(container), image.clone());
        blocking(move || {
            let _permit = permit;
            prepare::prepare(&engine, &sandbox, &container, &image, rootfs, files)
        })
    };
    let Prepared { spec, bundle, mut send, keep } = prepared.instrument(debug_span!("prepare")).await?;
    failpoint::reach("container.prepared");
    if let Some(pid) = pid {
        send.push(Role::Namespace(NamespaceType::Pid), pid);
    }
    let create = Create {
        container: container.id().to_owned(),
        sandbox: sandbox.id().to_owned(),
        spec,
        log: LogOptions { line_max: engine.config.log_line_max, awaited: false },
        bundle,
        mounts: None,
    };
    let permit = engine.concurrency.clone_process().await?;
    container.stage("clone and set up its process");
    let created = engine.monitor.create(create, send, keep).instrument(debug_span!("monitor")).await?;
    drop(permit);
    failpoint::reach("container.made");
    container.update(&engine.records, |record| {
        record.phase = ContainerPhase::Created;
        record.user = container.process(&engine.records).ok().map(|process| process.user.clone());
        record.enter("created");
        match created {
            CreateOutcome::Created(process) => {
                for warning in &process.warnings {
                    tracing::info!(container = container.id(), "{warning}");
                }
                (record.pid, record.start_time) = (process.pid, process.start_time);
            }
            // Reported by `start`, where callers expect the error of a command that is not in the image.
            CreateOutcome::Refused(failure) => {
                (record.refused, record.refused_command) = (Some(failure.message), failure.command);
            }
        }
        if let Some(status) = record.early_exit.take() {
            exit::mark_exited(record, &status);
        }
        true
    })
}

/// Returns the earliest time at which the image may have been pulled for this container. Nobody pulls an image for a
/// container before its pod is created, except `pinion run`, which sets an annotation.
fn pulled_since(sandbox: &Sandbox, container: &Container) -> u64 {
    let annotated = container.config().annotations.get(annotation::PULLED_SINCE).and_then(|text| text.parse().ok());
    annotated.unwrap_or(u64::MAX).min(sandbox.metadata.created_at)
}

/// Opens the PID namespace to join: that of the pod, or of the target container. `None` if the container joins none.
async fn pid_namespace_of(
    engine: &Arc<Inner>,
    sandbox: &Arc<Sandbox>,
    config: &ContainerConfig,
) -> Result<Option<OwnedFd>, Error> {
    if let Some(target) = &config.security.target {
        let target = engine.container(target)?;
        if target.metadata.sandbox != sandbox.id() {
            let id = target.id();
            return Err(Error::invalid(format!("namespace_options.target_id: container {id} belongs to another pod")));
        }
        let record = target.record();
        let refuse = || Error::state(format!("namespace_options.target_id: container {} is not running", target.id()));
        let _pidfd = offload::in_place(|| process::find(record.pid, record.start_time)).ok_or_else(refuse)?;
        let path = format!("/proc/{}/ns/pid", record.pid);
        let open = || rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        return offload::in_place(open).map(Some).map_err(failed(format_args!("open {path}")));
    }
    match config.security.pid {
        PidMode::Pod => pid_namespace(engine, sandbox).await.map(Some),
        PidMode::Container | PidMode::Node => Ok(None),
    }
}
