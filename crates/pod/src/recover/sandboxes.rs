//! Sandboxes after a restart: one that was not ready yet is taken back, one that is gets what it shares again.

use std::sync::Arc;

use monitor_api::HoldingState;
use tokio::task::JoinHandle;

use crate::{
    Error, SharedMode,
    container::ContainerPhase,
    engine::{Inner, blocking},
    error::failed,
    monitor::Inventory,
    sandbox::{
        Sandbox, SandboxMetadata, SandboxPhase, SandboxRecord, Shared, broken, broken_status, derive,
        forget_ended_init, make_files, make_owned, make_shared, run::hostname, teardown::teardown, write_files,
    },
    state::{Kind, Loaded},
};

/// What is on record of all sandboxes.
pub(super) type Records = Vec<Loaded<SandboxMetadata, SandboxRecord>>;

pub(super) fn load(engine: &Arc<Inner>, loaded: Records) {
    for Loaded { id, metadata, status } in loaded {
        let (metadata, record) = match (metadata, status) {
            (Ok(metadata), Ok(status)) if metadata.id == id => {
                (metadata, status.unwrap_or_else(SandboxRecord::reserved))
            }
            (Ok(metadata), Err(why)) if metadata.id == id => {
                tracing::warn!("pod {id} is not ready, its status cannot be read: {why}");
                (metadata, broken_status(&why))
            }
            (metadata, _) => {
                let other = |_| Error::internal("its metadata is of another pod");
                let why = metadata.map_or_else(|why| why, other);
                tracing::warn!("pod {id} is not ready, its record cannot be read: {why}");
                broken(&id, &why)
            }
        };
        engine.insert_sandbox(Arc::new(Sandbox::new(metadata, record)));
    }
}

/// Puts a pod into the lists that containers belong to and no record tells of.
pub(super) fn missing(engine: &Inner, id: &str) {
    let why = Error::internal("its record is gone");
    tracing::warn!("pod {id} is not ready: {why}");
    let (metadata, record) = broken(id, &why);
    let written = engine.records.create(Kind::Sandbox, id, &metadata);
    let written = written.and_then(|()| engine.records.write_status(Kind::Sandbox, id, &record));
    if let Err(error) = written {
        tracing::warn!("pod {id}: {error}");
    }
    engine.insert_sandbox(Arc::new(Sandbox::new(metadata, record)));
}

/// With containers known, since what was lost can be had from one that runs.
pub(super) async fn restore(engine: &Arc<Inner>, found: &mut Inventory) -> Vec<JoinHandle<()>> {
    let mut begun = Vec::new();
    for sandbox in engine.sandboxes() {
        found.objects.remove(sandbox.id());
        found.keys.remove(&Shared::key(sandbox.id()));
        let restored = match sandbox.record().phase {
            // What it shares stays as it is, for its containers.
            _ if sandbox.record().broken.is_some() => Ok(()),
            // It was ready once: its containers go first, and who removes them removes it.
            SandboxPhase::Reserved | SandboxPhase::Networked if !engine.containers_of(sandbox.id()).is_empty() => {
                Ok(())
            }
            SandboxPhase::Reserved | SandboxPhase::Networked => {
                begun.push(take_back(engine, &sandbox));
                Ok(())
            }
            SandboxPhase::Stopped => Ok(()),
            SandboxPhase::Ready => {
                engine.sandbox_names.made(sandbox.config().name.clone(), sandbox.id().to_owned());
                ready(engine, &sandbox).await
            }
        };
        if let Err(error) = restored {
            tracing::warn!("restore pod {}: {error}", sandbox.id());
        }
    }
    begun
}

/// As a task: a plugin that sleeps must not keep the daemon from its start.
fn take_back(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> JoinHandle<()> {
    let (engine, sandbox) = (Arc::clone(engine), Arc::clone(sandbox));
    let (alone, making) = (Arc::clone(&sandbox.gate).try_write_owned(), sandbox.making.begin());
    offload::spawn(async move {
        let (_alone, _making) = (alone, making);
        if let Err(error) = teardown(&engine, &sandbox).await {
            tracing::warn!("take back pod {}: {error}", sandbox.id());
        }
    })
}

/// Whether a pod's network namespace is not pinned any more. A pod is not given up because the kernel did not say.
fn is_gone(engine: &Inner, id: &str) -> bool {
    let pinned = engine.pins.is_pinned(id);
    pinned
        .inspect_err(|error| tracing::warn!("pod {id}: {error}; its network namespace is taken to be there"))
        .is_ok_and(|is| !is)
}

async fn ready(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    if sandbox.config().network == SharedMode::Pod && is_gone(engine, sandbox.id()) {
        tracing::warn!("the network namespace of pod {} is gone: the pod is not ready any more", sandbox.id());
        return sandbox.update(&engine.records, |record| {
            record.phase = SandboxPhase::Networked;
            record.enter("its network namespace is gone; remove the pod and make it again");
        });
    }
    let (shared, key) = (Shared::of(sandbox.config()), Shared::key(sandbox.id()));
    let custody = engine.monitor.custody();
    let kept = custody.kept_count(&key);
    if kept == shared.len() {
        return Ok(());
    }
    let mut descriptors = Vec::with_capacity(shared.len());
    if kept + 1 == shared.len() {
        // Of an older version, whose files were in the record's directory.
        for n in 0..kept {
            descriptors.extend(custody.kept(&key, n).map_err(failed("duplicate what the pod shares"))?);
        }
        descriptors.push(blocking(make_files).await?);
    } else {
        descriptors = again(engine, sandbox).await?;
    }
    if let Some(files) = descriptors.last() {
        let files = files.try_clone().map_err(failed("duplicate the pod's files"))?;
        let of = Arc::clone(sandbox);
        let write = move || {
            let (config, record) = (of.config(), of.record());
            write_files(files, config, &hostname(config), record.attachment.as_ref())
        };
        blocking(write).await?;
    }
    engine.monitor.keep(key, descriptors).await
}

/// From a container that runs, else new: nobody then has seen the old ones.
async fn again(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<Vec<rustix::fd::OwnedFd>, Error> {
    let alive = |phase| matches!(phase, ContainerPhase::Created | ContainerPhase::Running);
    let records = engine.containers_of(sandbox.id()).into_iter().map(|container| container.record());
    let pids: Vec<u32> = records.filter(|record| alive(record.phase)).map(|record| record.pid).collect();
    // One that is a zombie by now has none any more.
    if let Some(files) = pids.into_iter().find_map(|pid| derive(sandbox.config(), pid).ok()) {
        return Ok(files);
    }
    let hostname = hostname(sandbox.config());
    // The network namespace is there, and knows who owns it.
    let network = engine.pins.get(sandbox.id()).ok().filter(|_| sandbox.config().user_namespace.is_some());
    let user = network.map(syscall::user_namespace::owning_user_namespace).transpose();
    let user = user.map_err(failed("ask for the user namespace of the pod"))?;
    let owned = make_owned(engine, sandbox.config(), &hostname, user).await?;
    let sandbox = Arc::clone(sandbox);
    blocking(move || make_shared(sandbox.config(), &hostname, owned)).await
}

/// A pod's init ended: the next container that needs one starts another.
pub(super) fn init_ended(engine: &Arc<Inner>, id: &str) {
    let Ok(sandbox) = engine.sandbox(id) else { return };
    if engine.monitor.custody().process(id, &HoldingState::PodInit).is_none() {
        // It was ended on purpose.
        return;
    }
    let engine = Arc::clone(engine);
    offload::spawn(async move {
        // Another may have been started by now.
        let mut held = sandbox.pid.lock().await;
        if let Err(error) = forget_ended_init(&engine, &sandbox, &mut held).await {
            tracing::warn!("remove the init of pod {}: {error}", sandbox.id());
        }
    });
}
