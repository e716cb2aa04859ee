//! Everything a container is made of, before a process is: root, mounts, streams, identity, spec. Blocks, so it runs
//! off the async threads.

use std::{cell::RefCell, path::Path};

use image::{Appearance, Image};
use monitor_api::{Attachments, MOUNTS_MAX, Role};
use oci::{NamespaceType, Spec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use tracing::debug_span;

use super::{
    Container, ContainerConfig, SPEC, Volume, cdi_devices, declared,
    identity::Accounts,
    image_volume, log_file,
    outside_files::OutsideFiles,
    selinux,
    spec::{self, Facts, Mounts, Sources},
    stdio::{self, Stdio},
    volume,
};
use crate::{
    Error, SharedMode,
    engine::Inner,
    error::failed,
    sandbox::{FILES, KINDS, SHM, Sandbox, Shared, id_map, run::hostname},
    state::Kind,
};

/// What goes to the monitor, and what stays in custody.
pub(crate) struct Prepared {
    pub(crate) spec: Spec,
    /// A directory for its hooks to look into; empty: it has none.
    pub(crate) bundle: String,
    pub(crate) send: Attachments,
    pub(crate) keep: Attachments,
}

pub(crate) fn prepare(
    engine: &Inner,
    sandbox: &Sandbox,
    container: &Container,
    image: &Image,
    rootfs: OwnedFd,
    mut outside: OutsideFiles,
) -> Result<Prepared, Error> {
    let config = container.config();
    let security = &config.security;
    let accounts = Accounts::read(rootfs.as_fd())?;
    let user =
        accounts.resolve(&security.user, &image.config.user, &security.supplemental_groups, security.groups_policy)?;
    let hostname = hostname(sandbox.config());
    let edits = cdi_devices::edits(engine, config)?;
    let facts = Facts {
        metadata: &container.metadata,
        sandbox: sandbox.config(),
        image: &image.config,
        user,
        hostname: &hostname,
        nofile: engine.nofile.clone(),
        edits: &edits,
        own_devices: engine.config.device_ownership_from_security_context,
    };
    let process = spec::process(&facts)?;
    let log = outside.log.take();
    let origins = Origins { rootfs: rootfs.as_fd(), image, edits: &edits, outside: RefCell::new(outside) };
    let mounts = debug_span!("mounts").in_scope(|| mounts(engine, sandbox, container, &origins))?;
    let spec = spec::build(&facts, process, mounts.entries)?;
    engine.records.write(Kind::Container, container.id(), SPEC, &spec)?;
    let bundle = bundle(engine, container, &spec)?;
    container.resolved(spec.process.clone().unwrap_or_default());

    let mut streams = streams(engine, container, log)?;
    if let Some(filter) = filter(engine, config)? {
        streams.both(Role::Seccomp, filter)?;
    }
    let Stdio { mut send, keep } = streams;
    send.push(Role::Rootfs, rootfs);
    within_bounds(config, mounts.files.len())?;
    for (n, mount) in mounts.files {
        send.push(Role::Mount(n), mount);
    }
    for (kind, namespace) in namespaces(engine, sandbox)? {
        send.push(Role::Namespace(kind), namespace);
    }
    Ok(Prepared { spec, bundle, send, keep })
}

/// Every mount is a descriptor here, in the monitor, and in the container's process until it is attached.
pub(super) fn within_bounds(config: &ContainerConfig, mounts: usize) -> Result<(), Error> {
    if mounts <= MOUNTS_MAX {
        return Ok(());
    }
    let (volumes, over) = (config.volumes.len(), mounts - MOUNTS_MAX);
    Err(Error::invalid(format!(
        "config.mounts: {volumes} mounts, with those of CDI devices and of the image, are {over} too many for one container"
    )))
}

/// What hooks are told of: `config.json`, and where they find the container's root in its mount namespace.
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
    directory.to_str().map(str::to_owned).ok_or_else(|| Error::internal("the state directory's path is no text"))
}

/// The compiled system call filter, which commands in the container run under, too.
pub(crate) fn filter(engine: &Inner, config: &ContainerConfig) -> Result<Option<OwnedFd>, Error> {
    engine.filters.choose(&config.security, &spec::capabilities(config)?)
}

/// Makes the writable layer and mounts the root, detached. Waits for the store's disk.
pub(crate) fn rootfs(
    engine: &Inner,
    sandbox: &Sandbox,
    container: &Container,
    image: &Image,
) -> Result<OwnedFd, Error> {
    let _span = debug_span!("rootfs").entered();
    let (map, labels) = (id_map(engine, sandbox)?, selinux::labels(&container.config().security));
    engine.images.prepare_mapped(container.id(), &image.id, map.as_ref())?;
    let appearance = Appearance { map: map.as_ref(), label: labels.as_ref().map(|labels| labels.file.as_str()) };
    // Mount points are made in it; it becomes read-only, where that is asked for, when they are.
    Ok(engine.images.mount_as(container.id(), false, &appearance)?)
}

/// Where mounts come from that the request does not name.
struct Origins<'a> {
    rootfs: BorrowedFd<'a>,
    image: &'a Image,
    edits: &'a cdi::Edits,
    outside: RefCell<OutsideFiles>,
}

fn mounts(engine: &Inner, sandbox: &Sandbox, container: &Container, origins: &Origins<'_>) -> Result<Mounts, Error> {
    let config = container.config();
    let directory = engine.records.directory(Kind::Sandbox, sandbox.id());
    let readonly = config.security.readonly_rootfs;
    let label = selinux::labels(&config.security).map(|labels| labels.file);
    let shm = || match Shared::Shm.file(engine, sandbox)? {
        Some(tmpfs) => {
            label.iter().try_for_each(|label| selinux::label_shm(&tmpfs, label))?;
            volume::clone_detached(tmpfs.as_fd(), &directory.join(SHM))
        }
        None => volume::open_file(Path::new("/dev/shm")),
    };
    let file = |name: &str| {
        let files = Shared::Files.file(engine, sandbox)?;
        let files = files.ok_or_else(|| Error::internal(format!("the pod has no {name}")))?;
        label.iter().try_for_each(|label| selinux::label_in(&files, name, label))?;
        volume::clone_file(files.as_fd(), name, &directory.join(FILES), readonly)
    };
    let open = |volume: &Volume| match &volume.image {
        Some(_) => image_volume::open(engine, sandbox, container, volume),
        None => {
            let index = config.volumes.iter().position(|one| std::ptr::eq(one, volume));
            origins.outside.borrow_mut().take_volume(index.unwrap_or(usize::MAX))
        }
    };
    let own = engine.records.directory(Kind::Container, container.id());
    let mut extras = declared::mounts(origins.rootfs, config, &origins.image.config, &own.join("declared-volume"))?;
    let of_devices = cdi_devices::mounts(origins.edits)?;
    extras.retain(|extra| !of_devices.iter().any(|other| other.entry.destination == extra.entry.destination));
    extras.extend(of_devices);
    Mounts::new(config, extras, &Sources { shm: &shm, file: &file, volume: &open })
}

fn streams(engine: &Inner, container: &Container, log: Option<OwnedFd>) -> Result<Stdio, Error> {
    let directory = engine.records.directory(Kind::Container, container.id());
    let mut stdio = Stdio::make(&directory, container.config())?;
    if let Some(labels) = selinux::labels(&container.config().security) {
        stdio::FIFOS.iter().try_for_each(|name| selinux::label_path(&directory.join(name), &labels.file))?;
    }
    if let Some(log) = log {
        stdio.keep.push(Role::Log, log_file::place(&log)?);
        stdio.send.push(Role::Log, log);
    }
    Ok(stdio)
}

/// The pod's own, but for the PID namespace.
fn namespaces(engine: &Inner, sandbox: &Sandbox) -> Result<Vec<(NamespaceType, OwnedFd)>, Error> {
    let mut namespaces = Vec::with_capacity(4);
    if sandbox.config().network == SharedMode::Pod {
        let network = engine.pins.get(sandbox.id()).map_err(|e| {
            Error::state(format!("the pod's network namespace is gone: {e}; remove the pod and make it again"))
        })?;
        namespaces.push((NamespaceType::Network, network.into()));
    }
    for (kind, shared) in KINDS {
        namespaces.extend(shared.file(engine, sandbox)?.map(|file| (kind, file)));
    }
    Ok(namespaces)
}

/// The number of a signal as an image names it: `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3`.
pub(crate) fn signal(name: &str) -> Option<i32> {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    /// The first that programs may use, as glibc counts.
    const RTMIN: i32 = 34;
    const RTMAX: i32 = 64;
    let upper = name.trim().to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    let number = bare.parse().ok().or_else(|| {
        let named = NAMES.iter().position(|known| *known == bare).map(|at| at as i32 + 1);
        let real_time =
            |base: i32, rest: &str| if rest.is_empty() { Some(base) } else { Some(base + rest.parse::<i32>().ok()?) };
        named
            .or_else(|| bare.strip_prefix("RTMIN").and_then(|rest| real_time(RTMIN, rest)))
            .or_else(|| bare.strip_prefix("RTMAX").and_then(|rest| real_time(RTMAX, rest)))
    })?;
    (1..=RTMAX).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::signal;

    #[test]
    fn signals_have_names_and_numbers() {
        let told = ["SIGTERM", "term", "15", "SIGKILL", "SIGRTMIN+3", "RTMAX-1", "SIGSYS"].map(signal);
        assert_eq!(told, [Some(15), Some(15), Some(15), Some(9), Some(37), Some(63), Some(31)]);
        assert_eq!(["", "SIGNOPE", "0", "65", "RTMAX+1"].map(signal), [None; 5]);
    }
}
