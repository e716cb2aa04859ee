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
    Container, ContainerConfig, ContainerMetadata, ContainerPhase, ContainerRecord, Security, end, image_volume,
    outside_files::OutsideFiles,
    prepare::{self, Prepared},
    remove::{self, take_away},
};
use crate::{
    Error, ErrorKind, PidMode, annotation, clock,
    engine::{ContainerName, Inner, blocking},
    error::failed,
    failpoint, identifier,
    making::Maker,
    monitor::Made,
    names::Claim,
    process,
    sandbox::{Sandbox, SandboxConfig, has_lost_init, pid_namespace},
    state::Kind,
    undo::with_undo,
};

const SIGTERM: i32 = 15;

/// Joins an operation of the same name, returns an equal container that has not ended, or makes it.
///
/// | of that name and attempt there is one that | equal configuration | another |
/// |---|---|---|
/// | is being made | joined | waited for, then as below |
/// | waits for its start | its id | nothing of it ran: it is replaced |
/// | runs | its id | `AlreadyExists` |
/// | ended | a new one, beside it | the same |
pub(crate) async fn create(engine: &Arc<Inner>, sandbox: &str, config: ContainerConfig) -> Result<String, Error> {
    let sandbox = engine.sandbox(sandbox)?;
    let told = format!("create container {} in pod {}", config.name, sandbox.id());
    let name: ContainerName = (sandbox.id().to_owned(), config.name.clone(), config.attempt);
    let config = Arc::new(config);
    let make = || {
        let (engine, name, config) = (Arc::clone(engine), name.clone(), Arc::clone(&config));
        let sandbox = Arc::clone(&sandbox);
        move || async move {
            let made = make(&engine, &sandbox, config).instrument(debug_span!("create_container")).await;
            match &made {
                Ok(id) => engine.container_names.made(name, id.clone()),
                Err(_) => engine.container_names.free(&name),
            }
            made
        }
    };
    let outcome = loop {
        let id = match engine.container_names.claim(&name, make()) {
            Claim::Making(running) => match running.await {
                Ok(id) => id,
                Err(error) => break Err(error),
            },
            Claim::Made(id) => id,
        };
        match there(engine, &id, &config) {
            There::Same => break Ok(id),
            There::Over => engine.container_names.free_of(&name, &id),
            There::NeverRan => match remove::remove(engine, &id).await {
                Ok(()) => engine.container_names.free_of(&name, &id),
                Err(error) => break Err(error),
            },
            There::Runs => {
                let attempt = config.attempt;
                let message = format!(
                    "attempt {attempt} is container {id}, which runs with another configuration; stop it, or ask for \
                     another attempt"
                );
                break Err(Error::new(ErrorKind::AlreadyExists, message));
            }
        }
    };
    outcome.map_err(|e| image_volume::lead(e.during(told)))
}

/// What has a name.
enum There {
    /// What is asked for.
    Same,
    /// One that ended, or is gone.
    Over,
    /// Another, whose program never ran.
    NeverRan,
    /// Another, that runs.
    Runs,
}

fn there(engine: &Inner, id: &str, config: &ContainerConfig) -> There {
    let Ok(there) = engine.container(id) else { return There::Over };
    let json = |config: &ContainerConfig| serde_json::to_value(config).ok();
    match there.record().phase {
        ContainerPhase::Exited => There::Over,
        _ if json(there.config()) == json(config) => There::Same,
        ContainerPhase::Creating | ContainerPhase::Created => There::NeverRan,
        ContainerPhase::Starting | ContainerPhase::Running => There::Runs,
    }
}

async fn make(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>, config: Arc<ContainerConfig>) -> Result<String, Error> {
    let _making = engine.making.read().await;
    let _open = sandbox.gate.read().await;
    fits(&config.security, sandbox.config())?;
    if !sandbox.is_ready() {
        return Err(Error::state(format!("the pod is not ready: {}", sandbox.record().stage)));
    }
    let image = engine.images.find(&config.image)?;
    let image = image.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("image {:?} is not here; pull it first", config.image))
    })?;
    let mut namespace = None;
    let mut made = create_once(engine, sandbox, Arc::clone(&config), &image, &mut namespace).await;
    // Nothing can be cloned into a PID namespace whose init ends, and that it ends is visible only then.
    if let (Err(_), Some(namespace)) = (&made, namespace)
        && has_lost_init(engine, sandbox, namespace).await
    {
        made = create_once(engine, sandbox, config, &image, &mut None).await;
    }
    made.map_err(|Failed { error, container }| {
        container.iter().for_each(|container| engine.failures.container(container, &error));
        error
    })
}

/// A creation that failed, and what is known of the container.
struct Failed {
    error: Error,
    container: Option<Arc<Container>>,
}

/// Makes a container, or leaves nothing. `namespace` becomes the pod's PID namespace where the container was to join
/// it.
async fn create_once(
    engine: &Arc<Inner>,
    sandbox: &Arc<Sandbox>,
    config: Arc<ContainerConfig>,
    image: &Image,
    namespace: &mut Option<u64>,
) -> Result<String, Failed> {
    let recorded = record(engine, sandbox, config, image);
    let (container, _alone, _making) = recorded.map_err(|error| Failed { error, container: None })?;
    match set_up(engine, sandbox, &container, image, namespace).await {
        Ok(()) => Ok(container.id().to_owned()),
        Err(error) => {
            let error = with_undo(error, take_away(engine, &container).await);
            Err(Failed { error, container: Some(container) })
        }
    }
}

/// Refuses what the pod was not made for: a container never gets more of the node than its pod.
fn fits(security: &Security, pod: &SandboxConfig) -> Result<(), Error> {
    let refuse = |field: &str, why: &str| Err(Error::invalid(format!("config.linux.security_context.{field}: {why}")));
    if security.privileged && !pod.privileged {
        return refuse("privileged", "the pod was not made for privileged containers");
    }
    if security.user_namespace != pod.user_namespace {
        return refuse("namespace_options.userns_options", "must be equal to those of the pod");
    }
    let asked = [("network", security.network, pod.network), ("ipc", security.ipc, pod.ipc)];
    for (name, asked, has) in asked {
        if let Some(asked) = asked.filter(|asked| *asked != has) {
            return refuse(
                &format!("namespace_options.{name}"),
                &format!("{asked:?}, but the pod was made with {has:?}"),
            );
        }
    }
    if security.pid == PidMode::Node && pod.pid != PidMode::Node {
        return refuse("namespace_options.pid", &format!("Node, but the pod was made with {:?}", pod.pid));
    }
    Ok(())
}

/// Writes it into the ledger, and locks it: remove waits until it is made or gone.
fn record(
    engine: &Inner,
    sandbox: &Sandbox,
    config: Arc<ContainerConfig>,
    image: &Image,
) -> Result<(Arc<Container>, OwnedMutexGuard<()>, Maker), Error> {
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
    let making = container.making.begin();
    engine.insert_container(Arc::clone(&container));
    failpoint::reach("container.recorded");
    Ok((container, alone, making))
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
    let is_shared = container.config().security.target.is_none();
    *namespace =
        pid.as_ref().filter(|_| is_shared).and_then(|file| rustix::fs::fstat(file).ok()).map(|stat| stat.st_ino);
    container.stage("open volumes and log, prepare the root");
    // Both may wait for disks, each for its own, and neither takes a place.
    let outside = OutsideFiles::open(engine, container).instrument(debug_span!("volumes"));
    let rootfs = {
        let (engine, sandbox, container, image) =
            (Arc::clone(engine), Arc::clone(sandbox), Arc::clone(container), image.clone());
        let disk = engine.images.disk().clone();
        async move { disk.run(move || prepare::rootfs(&engine, &sandbox, &container, &image)).await }
    };
    // Neither is left alone when the other fails: what it makes is undone afterwards.
    let (outside, rootfs) = match tokio::join!(outside, rootfs) {
        (Ok(outside), Ok(rootfs)) => (outside, rootfs),
        (Err(error), rootfs) => {
            // Its last descriptor unmounts it.
            let unmount = move || {
                drop(rootfs);
                Ok(())
            };
            return Err(with_undo(error, blocking(unmount).await));
        }
        (Ok(_), Err(error)) => return Err(error),
    };
    let place = engine.lanes.mount().await?;
    container.stage("prepare mounts and streams");
    let prepared = {
        let (engine, sandbox, container, image) =
            (Arc::clone(engine), Arc::clone(sandbox), Arc::clone(container), image.clone());
        blocking(move || {
            let _place = place;
            prepare::prepare(&engine, &sandbox, &container, &image, rootfs, outside)
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
    let turn = engine.lanes.clone_turn().await?;
    container.stage("clone and set up its process");
    let made = engine.monitor.create(create, send, keep).instrument(debug_span!("monitor")).await?;
    drop(turn);
    failpoint::reach("container.made");
    container.update(&engine.records, |record| {
        record.phase = ContainerPhase::Created;
        record.user = container.process(&engine.records).ok().map(|process| process.user.clone());
        record.enter("created");
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

/// When the pull of its image can have begun at the earliest: nobody pulls for a container before its pod is made,
/// except `pinion run`, which says so.
fn pulled_since(sandbox: &Sandbox, container: &Container) -> u64 {
    let said = container.config().annotations.get(annotation::PULLED_SINCE).and_then(|text| text.parse().ok());
    said.unwrap_or(u64::MAX).min(sandbox.metadata.created_at)
}

/// The PID namespace to join: the pod's, or that of another container.
async fn pid_namespace_of(
    engine: &Arc<Inner>,
    sandbox: &Arc<Sandbox>,
    config: &ContainerConfig,
) -> Result<Option<OwnedFd>, Error> {
    if let Some(target) = &config.security.target {
        let target = engine.container(target)?;
        if target.metadata.sandbox != sandbox.id() {
            let id = target.id();
            return Err(Error::invalid(format!("namespace_options.target_id: container {id} is of another pod")));
        }
        let record = target.record();
        let refuse =
            || Error::state(format!("container {}, whose processes are to be seen, does not run", target.id()));
        let _alive = offload::here(|| process::find(record.pid, record.start_time)).ok_or_else(refuse)?;
        let path = format!("/proc/{}/ns/pid", record.pid);
        let open = || rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        return offload::here(open).map(Some).map_err(failed(format_args!("open {path}")));
    }
    match config.security.pid {
        PidMode::Pod => pid_namespace(engine, sandbox).await.map(Some),
        PidMode::Container | PidMode::Node => Ok(None),
    }
}
