//! Prepares everything that a container needs before its process is cloned: root file system, mounts, streams, user,
//! runtime specification. Blocks, so it runs off the async threads.

use std::{cell::RefCell, path::Path};

use image::{Image, MountOptions};
use monitor_api::{Attachments, MOUNTS_MAX, Role};
use oci::{NamespaceType, Spec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use tracing::debug_span;

use super::{
    Container, ContainerConfig, SPEC, Volume, cdi_devices, declared_volumes,
    identity::Accounts,
    image_volume, log_file,
    preopened_files::PreopenedFiles,
    selinux,
    spec::{self, Mounts, Sources, SpecInputs},
    stdio::{self, Stdio},
    volume,
};
use crate::{
    Error, SharedMode,
    engine::Inner,
    error::failed,
    sandbox::{FILES, KINDS, SHM, Sandbox, SharedResource, id_map, run::hostname},
    state::Kind,
};

/// The specification of a container, the descriptors that are sent to the monitor, and their duplicates that this
/// process keeps.
pub(crate) struct Prepared {
    pub(crate) spec: Spec,
    /// The bundle directory that its hooks are given; empty if it has no hooks.
    pub(crate) bundle: String,
    pub(crate) send: Attachments,
    pub(crate) keep: Attachments,
}

/// Builds the specification and opens or creates the descriptors that the monitor needs. Blocks.
pub(crate) fn prepare(
    engine: &Inner,
    sandbox: &Sandbox,
    container: &Container,
    image: &Image,
    rootfs: OwnedFd,
    mut files: PreopenedFiles,
) -> Result<Prepared, Error> {
    let config = container.config();
    let security = &config.security;
    let accounts = Accounts::read(rootfs.as_fd())?;
    let user =
        accounts.resolve(&security.user, &image.config.user, &security.supplemental_groups, security.groups_policy)?;
    let hostname = hostname(sandbox.config());
    let edits = cdi_devices::edits(engine, config)?;
    let inputs = SpecInputs {
        metadata: &container.metadata,
        sandbox: sandbox.config(),
        image: &image.config,
        user,
        hostname: &hostname,
        nofile: engine.nofile.clone(),
        edits: &edits,
        device_ownership: engine.config.device_ownership_from_security_context,
    };
    let process = spec::process(&inputs)?;
    let log = files.log.take();
    let mount_sources = MountSources { rootfs: rootfs.as_fd(), image, edits: &edits, files: RefCell::new(files) };
    let mounts = debug_span!("mounts").in_scope(|| mounts(engine, sandbox, container, &mount_sources))?;
    let spec = spec::build(&inputs, process, mounts.entries)?;
    engine.records.write(Kind::Container, container.id(), SPEC, &spec)?;
    let bundle = bundle(engine, container, &spec)?;
    container.set_process(spec.process.clone().unwrap_or_default());

    let mut streams = streams(engine, container, log)?;
    if let Some(filter) = filter(engine, config)? {
        streams.push_both(Role::Seccomp, filter)?;
    }
    let Stdio { mut send, keep } = streams;
    send.push(Role::Rootfs, rootfs);
    check_mount_count(config, mounts.files.len())?;
    for (n, mount) in mounts.files {
        send.push(Role::Mount(n), mount);
    }
    for (kind, namespace) in namespaces(engine, sandbox)? {
        send.push(Role::Namespace(kind), namespace);
    }
    Ok(Prepared { spec, bundle, send, keep })
}

/// Checks the number of mounts: each one is a descriptor in this process, in the monitor, and in the container's
/// process until it is attached.
pub(super) fn check_mount_count(config: &ContainerConfig, mounts: usize) -> Result<(), Error> {
    if mounts <= MOUNTS_MAX {
        return Ok(());
    }
    let (volumes, over) = (config.volumes.len(), mounts - MOUNTS_MAX);
    Err(Error::invalid(format!(
        "config.mounts: {volumes} mounts, with those of CDI devices and of the image's volumes, \
         exceed the limit of {MOUNTS_MAX} by {over}"
    )))
}

/// Creates the bundle for the container's hooks: `config.json`, and the directory on which they find the container's
/// root in its mount namespace. Returns its path; empty for a container without hooks.
fn bundle(engine: &Inner, container: &Container, spec: &Spec) -> Result<String, Error> {
    if spec.hooks.is_none() {
        return Ok(String::new());
    }
    engine.records.write(Kind::Container, container.id(), "config.json", spec)?;
    let directory = engine.records.directory(Kind::Container, container.id());
    let root = directory.join("rootfs");
    match std::fs::create_dir(&root) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(failed(format_args!("create {}", root.display()))(error));
        }
        _ => {}
    }
    directory
        .to_str()
        .map(str::to_owned)
        .ok_or_else(|| Error::internal("the path of the state directory is not valid UTF-8"))
}

/// Returns the compiled seccomp filter, which also applies to processes exec'd in the container.
pub(crate) fn filter(engine: &Inner, config: &ContainerConfig) -> Result<Option<OwnedFd>, Error> {
    engine.filters.choose(&config.security, &spec::capabilities(config)?)
}

/// Creates the writable layer and mounts the root file system, detached. Waits for the disk of the image store.
pub(crate) fn rootfs(
    engine: &Inner,
    sandbox: &Sandbox,
    container: &Container,
    image: &Image,
) -> Result<OwnedFd, Error> {
    let _span = debug_span!("rootfs").entered();
    let (map, labels) = (id_map(engine, sandbox)?, selinux::labels(&container.config().security));
    engine.images.prepare_mapped(container.id(), &image.id, map.as_ref())?;
    let options = MountOptions { map: map.as_ref(), label: labels.as_ref().map(|labels| labels.file.as_str()) };
    // Writable at first, because mount points are created in it. A root that is to be read-only becomes so afterwards.
    Ok(engine.images.mount_with(container.id(), false, &options)?)
}

/// The sources of mounts that the request does not name.
struct MountSources<'a> {
    rootfs: BorrowedFd<'a>,
    image: &'a Image,
    edits: &'a cdi::Edits,
    files: RefCell<PreopenedFiles>,
}

fn mounts(
    engine: &Inner,
    sandbox: &Sandbox,
    container: &Container,
    mount_sources: &MountSources<'_>,
) -> Result<Mounts, Error> {
    let config = container.config();
    let directory = engine.records.directory(Kind::Sandbox, sandbox.id());
    let readonly = config.security.readonly_rootfs;
    let label = selinux::labels(&config.security).map(|labels| labels.file);
    let shm = || match SharedResource::Shm.file(engine, sandbox)? {
        Some(tmpfs) => {
            label.iter().try_for_each(|label| selinux::label_shm(&tmpfs, label))?;
            volume::clone_detached(tmpfs.as_fd(), &directory.join(SHM))
        }
        None => volume::open_file(Path::new("/dev/shm")),
    };
    let file = |name: &str| {
        let files = SharedResource::Files.file(engine, sandbox)?;
        let files = files.ok_or_else(|| Error::internal(format!("the pod has no {name}")))?;
        label.iter().try_for_each(|label| selinux::label_in(&files, name, label))?;
        volume::clone_file(files.as_fd(), name, &directory.join(FILES), readonly)
    };
    let volume = |volume: &Volume| match &volume.image {
        Some(_) => image_volume::open(engine, sandbox, container, volume),
        None => {
            let index = config.volumes.iter().position(|other| std::ptr::eq(other, volume));
            mount_sources.files.borrow_mut().take_volume(index.unwrap_or(usize::MAX))
        }
    };
    let own_directory = engine.records.directory(Kind::Container, container.id());
    let mut extras = declared_volumes::mounts(
        mount_sources.rootfs,
        config,
        &mount_sources.image.config,
        &own_directory.join("declared-volume"),
    )?;
    let device_mounts = cdi_devices::mounts(mount_sources.edits)?;
    extras.retain(|extra| !device_mounts.iter().any(|other| other.entry.destination == extra.entry.destination));
    extras.extend(device_mounts);
    Mounts::new(config, extras, &Sources { shm: &shm, file: &file, volume: &volume })
}

fn streams(engine: &Inner, container: &Container, log: Option<OwnedFd>) -> Result<Stdio, Error> {
    let directory = engine.records.directory(Kind::Container, container.id());
    let mut stdio = Stdio::create(&directory, container.config())?;
    if let Some(labels) = selinux::labels(&container.config().security) {
        stdio::FIFOS.iter().try_for_each(|name| selinux::label_path(&directory.join(name), &labels.file))?;
    }
    if let Some(log) = log {
        stdio.keep.push(Role::Log, log_file::duplicate_path(&log)?);
        stdio.send.push(Role::Log, log);
    }
    Ok(stdio)
}

/// Opens the pod's namespaces, except the PID namespace.
fn namespaces(engine: &Inner, sandbox: &Sandbox) -> Result<Vec<(NamespaceType, OwnedFd)>, Error> {
    let mut namespaces = Vec::with_capacity(4);
    if sandbox.config().network == SharedMode::Pod {
        let network = engine.pins.get(sandbox.id()).map_err(|e| {
            Error::state(format!("the pod's network namespace is gone: {e}; remove the pod and create it again"))
        })?;
        namespaces.push((NamespaceType::Network, network.into()));
    }
    for (kind, shared) in KINDS {
        namespaces.extend(shared.file(engine, sandbox)?.map(|file| (kind, file)));
    }
    Ok(namespaces)
}
