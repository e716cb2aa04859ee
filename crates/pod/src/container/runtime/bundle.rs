//! The bundle: `config.json`, and the directories in which the monitor mounts the root and the volumes.

use std::{
    fs,
    os::unix::{fs::DirBuilderExt, net::UnixListener},
    path::Path,
};

use monitor_api::{Attachments, PRIVATE, Role};
use rustix::fs::{Mode, OFlags};

use super::specification::{BundleInputs, BundleUser, standalone};
use crate::{
    Error,
    error::failed,
    stdio::fifos,
    store::{Container, ContainerRuntime, ContainerShim, Sandbox},
};

/// Longest path of a Unix socket, see unix(7).
const SOCKET_PATH_MAX: usize = 107;

/// Writes the bundle of a container, and attaches what the monitor needs to have the runtime create the container.
/// Blocks.
pub(crate) fn write_bundle(
    runtime: &ContainerRuntime,
    sandbox: &Sandbox,
    container: &Container,
    inputs: BundleInputs<'_>,
    send: &mut Attachments,
) -> Result<(), Error> {
    let directory = Path::new(&runtime.command.bundle);
    let error = |path: &Path| format!("create {}", path.display());
    let root = fs::DirBuilder::new().recursive(true).mode(0o711).create(&runtime.root);
    root.map_err(failed(error(&runtime.root)))?;
    let is_terminal = inputs.spec.process.as_ref().is_some_and(|process| process.terminal);
    let user = BundleUser::Oci {
        allowed_annotations: &runtime.allowed_annotations,
        default_annotations: &runtime.default_annotations,
    };
    write(&runtime.command.bundle, user, (sandbox, container), inputs, send)?;
    if is_terminal {
        send.push(Role::ConsoleSocket, console_socket(&directory.join("console"))?.into());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty());
    send.push(Role::Bundle, opened.map_err(failed(format_args!("open {}", directory.display())))?);
    Ok(())
}

/// Writes the bundle of a container of a shim. Blocks.
pub(crate) fn write_shim_bundle(
    shim: &ContainerShim,
    sandbox: &Sandbox,
    container: &Container,
    inputs: BundleInputs<'_>,
    send: &Attachments,
) -> Result<(), Error> {
    let directory = Path::new(&shim.bundle);
    if let Some(parent) = directory.parent() {
        let created = fs::DirBuilder::new().mode(0o711).create(parent);
        created.map_err(failed(format_args!("create {}", parent.display())))?;
    }
    let user = BundleUser::Shim {
        allowed_annotations: &shim.allowed_annotations,
        sandbox_container: shim.sandbox_container.as_ref(),
    };
    write(&shim.bundle, user, (sandbox, container), inputs, send)?;
    fifos::create_fifo(&directory.join(LOG))
}

/// Name of the FIFO to which a shim writes its log. It does not start without it.
pub(crate) const LOG: &str = "log";

/// Creates the directories of a bundle, and writes the specification.
fn write(
    bundle: &str,
    user: BundleUser<'_>,
    (sandbox, container): (&Sandbox, &Container),
    inputs: BundleInputs<'_>,
    send: &Attachments,
) -> Result<(), Error> {
    let directory = Path::new(bundle);
    let error = |path: &Path| format!("create {}", path.display());
    for path in [directory.to_owned(), directory.join("rootfs"), directory.join(PRIVATE)] {
        fs::DirBuilder::new().mode(0o711).create(&path).map_err(failed(error(&path)))?;
    }
    let whole = standalone(bundle, user, (sandbox, container), inputs, send);
    let config = directory.join("config.json");
    let text = serde_json::to_vec(&whole).map_err(failed("encode the specification"))?;
    write_private(&config, &text).map_err(failed(error(&config)))
}

/// Writes a file that only root can read: the environment may contain secrets.
fn write_private(path: &Path, text: &[u8]) -> std::io::Result<()> {
    use std::{io::Write, os::unix::fs::OpenOptionsExt};
    fs::File::options().write(true).create_new(true).mode(0o600).open(path)?.write_all(text)
}

/// Listens on a socket to which the runtime sends the terminal of the container.
fn console_socket(path: &Path) -> Result<UnixListener, Error> {
    if path.as_os_str().len() > SOCKET_PATH_MAX {
        return Err(Error::invalid(format!(
            "create {}: the path is longer than the {SOCKET_PATH_MAX} bytes of a Unix socket; choose a shorter state_dir",
            path.display()
        )));
    }
    UnixListener::bind(path).map_err(failed(format_args!("listen on {}", path.display())))
}
