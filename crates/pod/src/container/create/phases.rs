//! The phases of a creation. Each is consumed by the next one, and rolls everything back if it cannot become that.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

use image::Image;
use monitor_api::{Attachments, Create, Role};
use nri::{Event, Round};
use oci::NamespaceType;
use rustix::fd::OwnedFd;
use tokio::sync::OwnedMutexGuard;
use tracing::{Instrument, debug_span};

use super::{adjust_draft::adjust_draft, pid_namespace::pid_namespace_of, sandbox_container, saved::Origin};
use crate::{
    ContainerConfig, ContainerId, Error, Signal, annotation, clock,
    container::{
        driver, module,
        prepare::{self, Draft, Prepared, preopened_files::PreopenedFiles},
        remove::remove_locked,
        runtime::{add_message, runtime_of},
        shim::shim_for,
    },
    error::failed,
    monitor::CreateOutcome,
    node::Handler,
    operation::{CreationGuard, blocking, failpoint, with_undo},
    parts::Parts,
    plugins, process,
    stdio::log_file,
    store::{Container, ContainerMetadata, ContainerPhase, ContainerRecord, ContainerVm, Sandbox},
};

/// Phase 1: the container is on record, and nothing else of it exists.
pub(super) struct Recorded<'a> {
    parts: &'a Arc<Parts>,
    sandbox: &'a Arc<Sandbox>,
    origin: Origin<'a>,
    container: Arc<Container>,
    /// NRI plugins without which it must not be created.
    required: &'a [String],
    /// Inode of the pod's PID namespace, once it is known that the container joins it.
    pid_namespace: Option<u64>,
    /// Makes a removal wait until the container is created or rolled back.
    _busy: OwnedMutexGuard<()>,
    _creation: CreationGuard,
}

/// Phase 2: the files of the node that it needs are open, and its root is mounted.
pub(super) struct Opened<'a> {
    recorded: Recorded<'a>,
    pid: Option<OwnedFd>,
    files: PreopenedFiles,
    rootfs: OwnedFd,
}

/// Phase 3: its specification is on record, and all descriptors that the monitor needs are open.
pub(super) struct Ready<'a> {
    recorded: Recorded<'a>,
    create: Create,
    send: Attachments,
    keep: Attachments,
}

/// Phase 4: its process waits to be started, or its command cannot be executed.
pub(super) struct Cloned<'a> {
    recorded: Recorded<'a>,
    outcome: CreateOutcome,
}

/// The error of a creation that was rolled back.
pub(super) struct CreateFailure {
    pub(super) error: Error,
    /// The container, if it was on record.
    pub(super) container: Option<Arc<Container>>,
    /// Inode of the pod's PID namespace, if the container was to join it.
    pub(super) pid_namespace: Option<u64>,
}

impl From<Error> for CreateFailure {
    fn from(error: Error) -> Self {
        Self { error, container: None, pid_namespace: None }
    }
}

impl<'a> Recorded<'a> {
    /// Writes the container's record and locks the container.
    pub(super) fn new(
        parts: &'a Arc<Parts>,
        sandbox: &'a Arc<Sandbox>,
        origin: Origin<'a>,
        config: Arc<ContainerConfig>,
        required: &'a [String],
    ) -> Result<Self, Error> {
        let metadata = metadata(parts, sandbox, origin, config)?;
        parts.registry.records.create(&metadata.id, &metadata)?;
        let container = Arc::new(Container::new(metadata, ContainerRecord::default()));
        let busy = Arc::clone(&container.busy).try_lock_owned().map_err(failed("lock a new container"))?;
        let creation = container.creation.begin();
        parts.registry.insert_container(Arc::clone(&container));
        failpoint::reach("container.recorded");
        Ok(Self { parts, sandbox, origin, container, required, pid_namespace: None, _busy: busy, _creation: creation })
    }

    pub(super) async fn open(mut self) -> Result<Opened<'a>, CreateFailure> {
        match self.try_open().await {
            Ok((pid, files, rootfs)) => Ok(Opened { recorded: self, pid, files, rootfs }),
            Err(error) => Err(self.roll_back(error).await),
        }
    }

    async fn try_open(&mut self) -> Result<(Option<OwnedFd>, PreopenedFiles, OwnedFd), Error> {
        let (parts, container) = (self.parts, &self.container);
        let since = pulled_since(self.sandbox, container);
        if let Some((began, ended)) = parts.node.pulls.take(&container.metadata.image_id, since) {
            container.part("pull the image".into(), began, ended, "");
        }
        let is_in_sandbox = container.metadata.vm.is_some()
            || container.metadata.shim.as_ref().is_some_and(|shim| shim.sandbox_container.is_some());
        let pid = match is_in_sandbox {
            // The sandbox has PID namespaces of its own.
            true => None,
            false => pid_namespace_of(parts, self.sandbox, container.config()).await?,
        };
        if let (Some(pid), None) = (&pid, &container.config().security.target) {
            self.pid_namespace = rustix::fs::fstat(pid).ok().map(|stat| stat.st_ino);
        }
        container.stage("open volumes and log, prepare the root");
        // Both may wait for a disk, each for a different one, and neither counts against the concurrency limit of
        // mounts. Both run to their end even if one fails, so that everything they created can be rolled back.
        let files = PreopenedFiles::open(parts, container).instrument(debug_span!("volumes"));
        match tokio::join!(files, self.mount_root()) {
            (Ok(files), Ok(rootfs)) => Ok((pid, files, rootfs)),
            (Err(error), Ok(rootfs)) => Err(with_undo(error, close(rootfs).await)),
            (Err(error), Err(_)) | (Ok(_), Err(error)) => Err(error),
        }
    }

    /// Mounts the root on a thread of the disk that the images are on.
    async fn mount_root(&self) -> Result<OwnedFd, Error> {
        let (parts, sandbox, container, image) = self.to_owned_inputs();
        let disk = parts.node.images.disk().clone();
        let layer = self.origin.layer()?;
        if let Some(layer) = layer {
            let (parts, container, image) = (Arc::clone(&parts), Arc::clone(&container), image.clone());
            // As long as it takes: short work of other pods does not wait for it.
            let unpack = move || {
                parts.node.images.prepare(container.id().as_str(), &image.id)?;
                Ok::<_, Error>(parts.node.images.unpack_changes(container.id().as_str(), layer)?)
            };
            disk.run_long(unpack).await?;
        }
        disk.run(move || prepare::rootfs(&parts, &sandbox, &container, &image)).await
    }

    /// Returns what the work of other threads needs.
    fn to_owned_inputs(&self) -> (Arc<Parts>, Arc<Sandbox>, Arc<Container>, Image) {
        (Arc::clone(self.parts), Arc::clone(self.sandbox), Arc::clone(&self.container), self.origin.image.clone())
    }

    async fn roll_back(self, error: Error) -> CreateFailure {
        let is_known = self.container.known_to_plugins.load(Ordering::SeqCst);
        let removal_messages = match is_known {
            true => plugins::removal_messages(self.parts, &self.container).await,
            false => None,
        };
        let error = with_undo(error, remove_locked(self.parts, &self.container).await);
        if is_known {
            plugins::removed(self.parts, &self.container, removal_messages).await;
        }
        CreateFailure { error, container: Some(Arc::clone(&self.container)), pid_namespace: self.pid_namespace }
    }
}

impl<'a> Opened<'a> {
    pub(super) async fn prepare(self) -> Result<Ready<'a>, CreateFailure> {
        let Self { recorded, pid, files, rootfs } = self;
        let interpreter =
            module::interpreter(recorded.parts, recorded.sandbox, &recorded.container, recorded.origin.image, &rootfs);
        let interpreter = match interpreter.await {
            Ok(interpreter) => interpreter,
            Err(error) => {
                let error = with_undo(error, close(rootfs).await);
                return Err(recorded.roll_back(error).await);
            }
        };
        let Prepared { mut spec, bundle, joins_pid, mut send, keep } =
            match try_prepare(&recorded, files, rootfs, pid.is_some()).await {
                Ok(prepared) => prepared,
                Err(error) => return Err(recorded.roll_back(error).await),
            };
        failpoint::reach("container.prepared");
        if let Some(pid) = pid.filter(|_| joins_pid) {
            send.push(Role::Namespace(NamespaceType::Pid), pid);
        }
        let interpreter = interpreter.map(|interpreter| {
            module::hide_process_files(&recorded.container, &mut spec);
            send.push(Role::Interpreter, interpreter.files.program);
            interpreter.files.code.into_iter().for_each(|code| send.push(Role::Code, code));
            interpreter.arguments
        });
        let create = Create {
            container: recorded.container.id().to_string(),
            sandbox: recorded.sandbox.id().to_string(),
            spec,
            log: log_file::options(&recorded.parts.node.config, &recorded.container.metadata),
            bundle,
            mounts: None,
            runtime: recorded.container.metadata.runtime.as_ref().map(|runtime| Box::new(runtime.command.clone())),
            external: false,
            interpreter,
        };
        Ok(Ready { recorded, create, send, keep })
    }
}

/// Closes a root that is not needed, which unmounts it.
async fn close(rootfs: OwnedFd) -> Result<(), Error> {
    blocking(move || {
        drop(rootfs);
        Ok(())
    })
    .await
}

async fn try_prepare(
    recorded: &Recorded<'_>,
    files: PreopenedFiles,
    rootfs: OwnedFd,
    shares_pid: bool,
) -> Result<Prepared, Error> {
    let permit = recorded.parts.concurrency.mount().await?;
    recorded.container.stage("prepare mounts and streams");
    let round = plugins::admit(recorded.parts, &recorded.container, recorded.required)?;
    let (parts, sandbox, container, image) = recorded.to_owned_inputs();
    let drafted = blocking(move || {
        let _permit = permit;
        let draft = prepare::draft(&parts, &sandbox, &container, &image, rootfs, files)?;
        match round {
            None => prepare::prepare(&parts, &sandbox, &container, draft, shares_pid).map(Drafted::Prepared),
            Some(round) => Ok(Drafted::ForPlugins(round, draft)),
        }
    });
    match drafted.instrument(debug_span!("prepare")).await? {
        Drafted::Prepared(prepared) => Ok(prepared),
        Drafted::ForPlugins(round, draft) => {
            let (parts, sandbox, container, _) = recorded.to_owned_inputs();
            let adjusting = adjust_draft(&parts, &sandbox, &container, (round, recorded.required), draft);
            let draft = adjusting.instrument(debug_span!("plugins")).await?;
            let permit = parts.concurrency.mount().await?;
            blocking(move || {
                let _permit = permit;
                prepare::prepare(&parts, &sandbox, &container, draft, shares_pid)
            })
            .await
        }
    }
}

/// What becomes of a draft: it is used as it is, or NRI plugins adjust it.
enum Drafted {
    Prepared(Prepared),
    ForPlugins(Round, Draft),
}

impl<'a> Ready<'a> {
    pub(super) async fn clone_process(self) -> Result<Cloned<'a>, CreateFailure> {
        let Self { recorded, create, send, keep } = self;
        let Recorded { parts, container, .. } = &recorded;
        let is_stderr =
            |(role, _): &&(Role, OwnedFd)| container.metadata.runtime.is_some() && *role == Role::StderrRead;
        let stderr = keep.iter().find(is_stderr).and_then(|(_, pipe)| pipe.try_clone().ok());
        let resources = create.spec.linux.as_ref().and_then(|linux| linux.resources.clone()).unwrap_or_default();
        let outcome = async {
            let metadata = &container.metadata;
            let runtime = metadata.runtime.as_ref().map(|runtime| &runtime.handler);
            let other = metadata.shim.as_ref().map(|shim| &shim.handler);
            let other = other.or(metadata.vm.as_ref().map(|vm| &vm.handler));
            let _permits = match runtime.or(other) {
                // It may hang: others do not wait for it.
                Some(handler) => parts.concurrency.program(handler, &recorded.sandbox.programs).await?.into(),
                None => vec![parts.concurrency.clone_process().await?],
            };
            container.stage("clone and set up its process");
            let created = driver::create(parts, recorded.sandbox, container, create, (send, keep));
            created.instrument(debug_span!("monitor")).await
        };
        match outcome.await {
            Ok(outcome) => {
                if let CreateOutcome::Created(process) = &outcome
                    && process.pid != 0
                {
                    let process = (process.pid, process.start_time);
                    parts.node.register_scope(&container.metadata.cgroup, process, resources);
                }
                Ok(Cloned { recorded, outcome })
            }
            Err(error) => {
                let error = match stderr {
                    Some(stderr) => add_message(error, container, stderr).await,
                    None => error,
                };
                Err(recorded.roll_back(error).await)
            }
        }
    }
}

impl Cloned<'_> {
    /// Records the container as created, and returns its id.
    pub(super) async fn publish(self) -> Result<ContainerId, CreateFailure> {
        failpoint::reach("container.made");
        let Self { recorded, outcome } = self;
        let Recorded { parts, container, .. } = &recorded;
        let program = match (&outcome, &container.metadata.runtime) {
            (CreateOutcome::Created(created), Some(_)) => {
                offload::in_place(|| process::program(created.pid).ok().flatten())
            }
            _ => None,
        };
        let published = parts.registry.update_container(container, |record| {
            record.phase = ContainerPhase::Created;
            record.frozen = container.is_restored();
            record.user = container.process(&parts.registry.records).ok().map(|process| process.user.clone());
            record.enter("created");
            match outcome {
                CreateOutcome::Created(process) => {
                    for warning in &process.warnings {
                        tracing::info!(container = container.id().as_str(), "{warning}");
                    }
                    (record.pid, record.start_time) = (process.pid, process.start_time);
                    record.created_program = program;
                }
                // Reported by `start`, where callers expect the error of a command that is not in the image.
                CreateOutcome::Refused(failure) => {
                    (record.refused, record.refused_command) = (Some(failure.message), failure.command);
                }
            }
            if let Some(status) = record.early_exit.take() {
                record.mark_exited(&status);
            }
            true
        });
        match published {
            Ok(()) => {
                plugins::container_event(parts, Event::PostCreateContainer, container).await;
                Ok(container.id().clone())
            }
            Err(error) => Err(recorded.roll_back(error).await),
        }
    }
}

fn metadata(
    parts: &Parts,
    sandbox: &Sandbox,
    origin: Origin<'_>,
    config: Arc<ContainerConfig>,
) -> Result<ContainerMetadata, Error> {
    let image = origin.image;
    let id = ContainerId::generate()?;
    let (state_dir, directory) = (&parts.node.config.state_dir, parts.registry.records.directory(&id));
    let (mut runtime, mut shim, mut vm) = (None, None, None);
    match parts.node.handlers.get(&sandbox.config().runtime_handler)? {
        Handler::Native | Handler::Wasm(_) => {}
        Handler::Oci(handler) => runtime = Some(runtime_of(handler, state_dir, &directory)?),
        // The processes of the virtual machine itself are on the node.
        Handler::Vm(_) if config.is_sandbox_container() => {}
        Handler::Vm(hypervisor) => {
            let guest_id = origin.saved.map(|saved| saved.guest_id.clone());
            vm = Some(ContainerVm { guest_id, ..hypervisor.container_vm() });
        }
        Handler::Shim(handler) => {
            let sandbox_container = match config.is_sandbox_container() {
                true => Some(id.clone()),
                false => sandbox_container::find(parts, sandbox).map(|container| container.id().clone()),
            };
            shim = Some(shim_for(handler, state_dir, &id, &directory, sandbox_container)?);
        }
    }
    let image_signal = image.config.stop_signal.as_deref().and_then(|text| Signal::parse(text.trim()));
    Ok(ContainerMetadata {
        cgroup: parts.node.cgroup_of_container(sandbox, &id),
        sandbox: sandbox.id().clone(),
        image_id: image.id.clone(),
        created_at: clock::now(),
        log_path: log_path(sandbox, &config),
        stop_signal: config.stop_signal.or(image_signal.map(Signal::number)).unwrap_or(Signal::TERM.number()),
        config,
        runtime,
        shim,
        vm,
        id,
    })
}

fn log_path(sandbox: &Sandbox, config: &ContainerConfig) -> Option<PathBuf> {
    let log = config.log_path.as_ref().filter(|path| !path.as_os_str().is_empty())?;
    let directory = sandbox.config().log_directory.as_ref();
    match directory {
        Some(directory) => Some(directory.join(log)),
        None => log.is_absolute().then(|| log.clone()),
    }
}

/// Returns the earliest time at which the image may have been pulled for this container. Nobody pulls an image for a
/// container before its pod is created, except `pinion run`, which sets an annotation.
fn pulled_since(sandbox: &Sandbox, container: &Container) -> u64 {
    let annotated = container.config().annotations.get(annotation::PULLED_SINCE).and_then(|text| text.parse().ok());
    annotated.unwrap_or(u64::MAX).min(sandbox.metadata.created_at)
}
