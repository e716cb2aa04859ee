//! The ports of the streams of a process in a guest. Their other ends are pipes on the node: for a container, the FIFOs
//! that every container has.

use std::{path::Path, time::Duration};

use agent_api::Streams;
use rustix::{fd::OwnedFd, fs::OFlags};
use vm::{qemu::Qemu, vmm::Vmm};

use super::from_vmm;
use crate::{ContainerConfig, Error, stdio::fifos, store::STDIN};

/// Number of characters of an id in the names of ports, which are short.
const ID_LENGTH: usize = 32;

/// Returns the name of the port of a stream of the process with this id.
fn name(id: &str, stream: &str) -> String {
    format!("{}-{stream}", &id[..id.len().min(ID_LENGTH)])
}

/// Ends of pipes that become the streams of a process in a guest: the read end of its input, and the write ends of its
/// output, whose read ends stay open until the ports are removed. `None` for a stream that it does not have.
#[derive(Debug, Default)]
pub(crate) struct PortPipes {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
}

impl PortPipes {
    /// Opens the FIFOs of a container, whose other ends are open: this does not wait.
    pub(super) fn of_container(directory: &Path, config: &ContainerConfig) -> Result<Self, Error> {
        let open = |is_requested: bool, name: &str, access: OFlags| {
            let open = || offload::in_place(|| fifos::open(&directory.join(name), access | OFlags::NONBLOCK));
            is_requested.then(open).transpose()
        };
        Ok(Self {
            stdin: open(config.stdin, STDIN, OFlags::RDONLY)?,
            stdout: open(true, "stdout", OFlags::WRONLY)?,
            stderr: open(!config.tty, "stderr", OFlags::WRONLY)?,
        })
    }

    /// Adds the ports of the process with this id. If one fails, the others are removed.
    pub(crate) async fn add(self, qemu: &Qemu, id: &str) -> Result<Streams, Error> {
        let added = self.try_add(qemu, id).await;
        if added.is_err() {
            remove_ports(qemu, id).await;
        }
        added
    }

    async fn try_add(self, qemu: &Qemu, id: &str) -> Result<Streams, Error> {
        let mut streams = Streams::default();
        if let Some(pipe) = self.stdin {
            let name = name(id, "stdin");
            qemu.add_input(&name, pipe).await.map_err(from_vmm)?;
            streams.stdin = Some(name);
        }
        let outputs = [(self.stdout, "stdout", &mut streams.stdout), (self.stderr, "stderr", &mut streams.stderr)];
        for (pipe, stream, port) in outputs {
            if let Some(pipe) = pipe {
                let name = name(id, stream);
                qemu.add_output(&name, pipe).await.map_err(from_vmm)?;
                *port = Some(name);
            }
        }
        Ok(streams)
    }
}

/// Removes the ports of the process with this id. A port that cannot be removed ends with the virtual machine.
pub(crate) async fn remove_ports(qemu: &Qemu, id: &str) {
    for stream in ["stdin", "stdout", "stderr"] {
        if let Err(error) = qemu.remove_port(&name(id, stream)).await {
            tracing::debug!("{error}");
        }
    }
}

/// Waits until the output of the process with this id has reached its FIFOs, for at most `timeout` for each stream. Returns
/// false if that was too short.
pub(crate) async fn drain(qemu: &Qemu, id: &str, timeout: Duration) -> bool {
    let mut is_drained = true;
    for stream in ["stdout", "stderr"] {
        let name = name(id, stream);
        if qemu.ports().contains(&name)
            && let Err(error) = qemu.drain(&name, timeout).await
        {
            tracing::debug!("{error}");
            is_drained &= error.kind != vm::ErrorKind::Timeout;
        }
    }
    is_drained
}
