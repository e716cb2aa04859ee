//! Prepares everything that a container needs before its process is cloned: root file system, mounts, streams, user,
//! runtime specification. Blocks, so it runs off the async threads.

pub(crate) mod cdi_devices;
mod declared_volumes;
mod host_directory;
pub(crate) mod image_volume;
pub(crate) mod preopened_files;
pub(crate) mod volume;

use std::{cell::RefCell, path::Path};

use image::{Image, MountOptions};
use monitor_api::{Attachments, Role};
use oci::{NamespaceType, Spec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use tracing::debug_span;

use super::{
    driver::Driver,
    identity::Accounts,
    runtime::{BundleInputs, write_bundle, write_shim_bundle},
    selinux,
    spec::{self, Mounts, Sources, SpecInputs},
};
use crate::{
    ContainerDefaults, Error, OciHandler, PidMode, SharedMode, Volume,
    error::failed,
    namespaces::{FILES, KINDS, SHM, SharedResource, hostname, id_map, root_of},
    node::Handler,
    parts::Parts,
    stdio::{Stdio, log_file::LogFile},
    store::{Container, FIFOS, SPEC, Sandbox},
};
use preopened_files::PreopenedFiles;

/// Name of the file in the container's state directory that holds the seccomp profile of a plugin, if one set it.
const SECCOMP: &str = "seccomp.json";

/// The specification of a container, the descriptors that are sent to the monitor, and their duplicates that this
/// process keeps.
pub(crate) struct Prepared {
    pub(crate) spec: Spec,
    /// The bundle directory that its hooks are given; empty if it has no hooks.
    pub(crate) bundle: String,
    /// Whether it joins the PID namespace that the request names, if that is not one of its own.
    pub(crate) joins_pid: bool,
    pub(crate) send: Attachments,
    pub(crate) keep: Attachments,
}

/// A specification of which nothing was created yet, and the descriptors that belong to it.
pub(crate) struct Draft {
    pub(crate) spec: Spec,
    /// Detached mounts for some entries of the specification, by index.
    pub(crate) mounts: Vec<(u32, OwnedFd)>,
    /// Namespaces that plugins supply in place of the pod's or of new ones.
    pub(crate) namespaces: Vec<(NamespaceType, OwnedFd)>,
    /// Kinds of which plugins request a new namespace in place of the pod's.
    pub(crate) own_namespaces: Vec<NamespaceType>,
    /// Seccomp profile that a plugin supplies in place of the requested one.
    pub(crate) seccomp: Option<oci::Seccomp>,
    rootfs: OwnedFd,
    log: Option<LogFile>,
}

/// Builds the specification, and opens its mounts. Blocks.
pub(crate) fn draft(
    parts: &Parts,
    sandbox: &Sandbox,
    container: &Container,
    image: &Image,
    rootfs: OwnedFd,
    mut files: PreopenedFiles,
) -> Result<Draft, Error> {
    let config = container.config();
    let security = &config.security;
    let accounts = Accounts::read(rootfs.as_fd())?;
    let user =
        accounts.resolve(&security.user, &image.config.user, &security.supplemental_groups, security.groups_policy)?;
    let hostname = hostname(sandbox.config());
    let edits = cdi_devices::edits(parts, &config.cdi_devices)?;
    // What an administrator sets for containers is not for the processes of a virtual machine: virtiofsd has a descriptor for each
    // inode that the guest knows.
    let own = config.vm_process.map(|_| ContainerDefaults::default());
    let mut nofile = parts.node.nofile.clone();
    if own.is_some() {
        nofile.soft = nofile.hard;
    }
    let inputs = SpecInputs {
        metadata: &container.metadata,
        sandbox: sandbox.config(),
        image: &image.config,
        user,
        hostname: &hostname,
        nofile,
        defaults: own.as_ref().unwrap_or(&parts.node.config.defaults),
        device_ownership: parts.node.config.device_ownership_from_security_context || config.vm_process.is_some(),
        privileged_devices: handler_of(parts, sandbox).map(|handler| handler.privileged_devices).unwrap_or_default(),
    };
    let process = spec::process(&inputs)?;
    let log = files.log.take();
    let mount_sources = MountSources { rootfs: rootfs.as_fd(), image, edits: &edits, files: RefCell::new(files) };
    let mounts = debug_span!("mounts").in_scope(|| mounts(parts, sandbox, container, &mount_sources))?;
    let mut spec = spec::build(&inputs, process, mounts.entries)?;
    spec::edits::apply(&mut spec, &edits)?;
    Ok(Draft {
        spec,
        mounts: mounts.files,
        namespaces: Vec::new(),
        own_namespaces: Vec::new(),
        seccomp: None,
        rootfs,
        log,
    })
}

/// Writes the specification, and opens or creates the descriptors that the monitor needs. Blocks.
///
/// `shares_pid`: the caller has a PID namespace for the container to join.
pub(crate) fn prepare(
    parts: &Parts,
    sandbox: &Sandbox,
    container: &Container,
    draft: Draft,
    shares_pid: bool,
) -> Result<Prepared, Error> {
    let Draft { spec, mounts, namespaces: replaced, own_namespaces, seccomp, rootfs, log } = draft;
    let config = container.config();
    parts.registry.records.write(container.id(), SPEC, &spec)?;
    if let Some(profile) = &seccomp {
        parts.registry.records.write(container.id(), SECCOMP, profile)?;
    }
    // A runtime or shim runs the hooks itself.
    let runs_hooks = container.metadata.runtime.is_some() || container.metadata.shim.is_some();
    let bundle = if runs_hooks { String::new() } else { bundle(parts, container, &spec)? };
    container.set_process(spec.process.clone().unwrap_or_default());

    let mut streams = streams(parts, container, log)?;
    let granted = spec::capabilities(config, &parts.node.config.defaults)?;
    let filter = match &seccomp {
        Some(profile) => Some(parts.node.filters.compile(profile)?),
        None => parts.node.filters.choose(&config.security, &granted)?,
    };
    if let Some(filter) = filter {
        streams.push_both(Role::Seccomp, filter)?;
    }
    let Stdio { mut send, keep } = streams;
    send.push(Role::Rootfs, rootfs);
    volume::check_mount_count(config, mounts.len())?;
    for (n, mount) in mounts {
        send.push(Role::Mount(n), mount);
    }
    let joins_pods = |kind: NamespaceType| {
        let is_replaced = own_namespaces.contains(&kind) || replaced.iter().any(|(other, _)| *other == kind);
        spec.has_namespace(kind) && !is_replaced
    };
    let joins_pid = joins_pods(NamespaceType::Pid);
    for (kind, namespace) in namespaces(parts, sandbox)? {
        if joins_pods(kind) {
            send.push(Role::Namespace(kind), namespace);
        }
    }
    for (kind, namespace) in replaced {
        send.push(Role::Namespace(kind), namespace);
    }
    if runs_hooks {
        let profile = match seccomp {
            Some(profile) => Some(profile),
            None => parts.node.filters.profile(&config.security, &granted)?,
        };
        let joins = (joins_pid && shares_pid).then_some(NamespaceType::Pid);
        let limits_huge_pages = parts.node.trees.limits_huge_pages();
        let base = handler_of(parts, sandbox).and_then(|handler| handler.base_spec.as_deref());
        let sandbox_process = sandbox_process(parts, container);
        let inputs = BundleInputs { spec: &spec, seccomp: profile, joins, base, limits_huge_pages, sandbox_process };
        if let Some(runtime) = &container.metadata.runtime {
            write_bundle(runtime, sandbox, container, inputs, &mut send)?;
        } else if let Some(shim) = &container.metadata.shim {
            write_shim_bundle(shim, sandbox, container, inputs, &send)?;
        }
    }
    Ok(Prepared { spec, bundle, joins_pid, send, keep })
}

/// Returns the pid of the sandbox whose PID namespace a container of a shim joins, because its pod shares one.
fn sandbox_process(parts: &Parts, container: &Container) -> Option<u32> {
    let id = container.metadata.shim.as_ref()?.sandbox_container.as_ref()?;
    let security = &container.config().security;
    let shares = security.pid == PidMode::Pod || security.target.is_some();
    let pid = parts.registry.container(id).ok()?.record().pid;
    (shares && id != container.id() && pid != 0).then_some(pid)
}

/// Returns the OCI runtime that is configured as the handler of a pod, if it has one.
fn handler_of<'a>(parts: &'a Parts, sandbox: &Sandbox) -> Option<&'a OciHandler> {
    match parts.node.handlers.get(&sandbox.config().runtime_handler) {
        Ok(Handler::Oci(handler)) => Some(handler),
        Ok(Handler::Native | Handler::Shim(_) | Handler::Vm(_) | Handler::Wasm(_)) | Err(_) => None,
    }
}

/// Creates the bundle for the container's hooks: `config.json`, and the directory on which they find the container's
/// root in its mount namespace. Returns its path; empty for a container without hooks.
fn bundle(parts: &Parts, container: &Container, spec: &Spec) -> Result<String, Error> {
    if spec.hooks.is_none() {
        return Ok(String::new());
    }
    parts.registry.records.write(container.id(), "config.json", spec)?;
    let directory = parts.registry.records.directory(container.id());
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

/// Returns the compiled seccomp filter of a container that exists. It also applies to processes exec'd in the container.
pub(crate) fn filter(parts: &Parts, container: &Container) -> Result<Option<OwnedFd>, Error> {
    if let Some(profile) = parts.registry.records.read_if_present(container.id(), SECCOMP)? {
        return parts.node.filters.compile(&profile).map(Some);
    }
    let (config, defaults) = (container.config(), &parts.node.config.defaults);
    // Configured defaults may have changed since the container was created.
    let is_configured = defaults.capabilities != ContainerDefaults::default().capabilities;
    let created = is_configured.then(|| container.spec(&parts.registry.records).ok()).flatten();
    let granted = match created.and_then(|spec| spec.process?.capabilities) {
        Some(sets) => sets.bounding,
        None => spec::capabilities(config, defaults)?,
    };
    parts.node.filters.choose(&config.security, &granted)
}

/// Creates the writable layer and mounts the root file system, detached. Waits for the disk of the image store.
pub(crate) fn rootfs(parts: &Parts, sandbox: &Sandbox, container: &Container, image: &Image) -> Result<OwnedFd, Error> {
    let _span = debug_span!("rootfs").entered();
    let (map, labels) = (id_map(&parts.monitor, sandbox)?, selinux::labels(&container.config().security));
    if container.is_sandbox_container() {
        let owner = map.as_ref().map(|_| root_of(sandbox.config()));
        return pod_init::root(owner).map_err(failed("create the root of the sandbox container"));
    }
    parts.node.images.prepare_mapped(container.id().as_str(), &image.id, map.as_ref())?;
    let options = MountOptions { map: map.as_ref(), label: labels.as_ref().map(|labels| labels.file.as_str()) };
    // Writable at first, because mount points are created in it. A root that is to be read-only becomes so afterwards.
    Ok(parts.node.images.mount_with(container.id().as_str(), false, &options)?)
}

/// The sources of mounts that the request does not name.
struct MountSources<'a> {
    rootfs: BorrowedFd<'a>,
    image: &'a Image,
    edits: &'a cdi::Edits,
    files: RefCell<PreopenedFiles>,
}

fn mounts(
    parts: &Parts,
    sandbox: &Sandbox,
    container: &Container,
    mount_sources: &MountSources<'_>,
) -> Result<Mounts, Error> {
    let config = container.config();
    let directory = parts.registry.records.directory(sandbox.id());
    let readonly = config.security.readonly_rootfs;
    let label = selinux::labels(&config.security).map(|labels| labels.file);
    let shm = || match SharedResource::Shm.file(&parts.monitor, sandbox)? {
        Some(tmpfs) => {
            label.iter().try_for_each(|label| selinux::label_shm(&tmpfs, label))?;
            volume::clone_detached(tmpfs.as_fd(), &directory.join(SHM))
        }
        None => volume::open_file(Path::new("/dev/shm")),
    };
    let file = |name: &str| {
        let files = SharedResource::Files.file(&parts.monitor, sandbox)?;
        let files = files.ok_or_else(|| Error::internal(format!("the pod has no {name}")))?;
        label.iter().try_for_each(|label| selinux::label_in(&files, name, label))?;
        volume::clone_file(files.as_fd(), name, &directory.join(FILES), readonly)
    };
    let volume = |volume: &Volume| match &volume.image {
        Some(_) => image_volume::open(parts, sandbox, container, volume),
        None => {
            let index = config.volumes.iter().position(|other| std::ptr::eq(other, volume));
            mount_sources.files.borrow_mut().take_volume(index.unwrap_or(usize::MAX))
        }
    };
    let own_directory = parts.registry.records.directory(container.id());
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

fn streams(parts: &Parts, container: &Container, log: Option<LogFile>) -> Result<Stdio, Error> {
    let directory = parts.registry.records.directory(container.id());
    let mut stdio = Stdio::create(&directory, container.config(), Driver::of(container).stream_user())?;
    if let Some(labels) = selinux::labels(&container.config().security) {
        FIFOS.iter().try_for_each(|name| selinux::label_path(&directory.join(name), &labels.file))?;
    }
    if let Some(log) = log {
        log.duplicate_paths()?.into_iter().for_each(|(role, file)| stdio.keep.push(role, file));
        log.into_attachments().into_iter().for_each(|(role, file)| stdio.send.push(role, file));
    }
    Ok(stdio)
}

/// Opens the pod's namespaces, except the PID namespace.
fn namespaces(parts: &Parts, sandbox: &Sandbox) -> Result<Vec<(NamespaceType, OwnedFd)>, Error> {
    let mut namespaces = Vec::with_capacity(4);
    if sandbox.config().network == SharedMode::Pod {
        let network = parts.node.pins.get(sandbox.id().as_str()).map_err(|e| {
            Error::state(format!("the pod's network namespace is gone: {e}; remove the pod and create it again"))
        })?;
        namespaces.push((NamespaceType::Network, network.into()));
    }
    for (kind, shared) in KINDS {
        namespaces.extend(shared.file(&parts.monitor, sandbox)?.map(|file| (kind, file)));
    }
    Ok(namespaces)
}
