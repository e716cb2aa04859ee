//! The ports of the streams of a process in a guest. Their other ends are pipes on the node: for a container, the FIFOs
//! that every container has.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use agent_api::Streams;
use rustix::{fd::OwnedFd, fs::OFlags};
use vm::{
    qemu::{Qemu, SavedPort},
    vmm::Vmm,
};

use super::from_vmm;
use crate::{
    ContainerConfig, Error,
    parts::Parts,
    stdio::fifos,
    store::{Container, STDIN, Sandbox},
};

/// Number of characters of an id in the names of ports, which are short.
const ID_LENGTH: usize = 32;

const STREAMS: [&str; 3] = ["stdin", "stdout", "stderr"];

/// Returns the name of the port of a stream of the process with this id.
fn name(id: &str, stream: &str) -> String {
    format!("{}-{stream}", short(id))
}

fn short(id: &str) -> &str {
    &id[..id.len().min(ID_LENGTH)]
}

/// Returns the short ids of the processes that have ports of output.
pub(super) fn output_owners(qemu: &Qemu) -> BTreeSet<String> {
    let ports = qemu.ports();
    let owners = ports.iter().filter_map(|port| port.rsplit_once('-'));
    owners.filter(|(_, stream)| STREAMS[1..].contains(stream)).map(|(owner, _)| owner.to_owned()).collect()
}

/// Returns the ports of processes that are not among those with these ids, and of forwarded connections that are not among these.
fn leftovers<'a>(ports: &'a [String], ids: &BTreeSet<String>, forwards: &BTreeSet<String>) -> Vec<&'a str> {
    let is_leftover = |port: &&str| {
        if port.starts_with(agent_api::FORWARD_PREFIX) {
            return !forwards.contains(*port);
        }
        let owner = port.rsplit_once('-').filter(|(_, stream)| STREAMS.contains(stream)).map(|(owner, _)| owner);
        owner.is_some_and(|owner| !ids.iter().any(|id| short(id) == owner))
    };
    ports.iter().map(String::as_str).filter(is_leftover).collect()
}

/// Removes the ports that belong neither to a container nor to a command of this process: those of commands whose daemon
/// was killed, and those that could not be removed before. The agent kills what still uses them. Must not be called before
/// all containers of the pod are registered.
pub(super) async fn remove_leftover_ports(parts: &Parts, sandbox: &Sandbox, qemu: &Qemu) {
    // Before the owners: each of those is registered before its first port is added.
    let ports = qemu.ports();
    let mut ids: BTreeSet<String> = sandbox.guest_execs.ids().into_iter().collect();
    ids.extend(parts.registry.containers_of(sandbox.id()).iter().map(|container| container.guest_id().to_string()));
    let forwards = sandbox.forwards().clone();
    for port in leftovers(&ports, &ids, &forwards) {
        match qemu.remove_port(port).await {
            Ok(()) => {
                tracing::debug!(pod = sandbox.id().as_str(), port, "removed the port of a command that has no client")
            }
            Err(error) => tracing::debug!(pod = sandbox.id().as_str(), "{error}"),
        }
    }
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

/// What the ports of a saved state are connected to when it is restored, by their names: the streams of its containers. All others
/// belonged to connections and commands of the daemon that saved it.
#[derive(Debug, Default)]
pub(crate) struct SavedPorts(BTreeMap<String, SavedPort>);

impl SavedPorts {
    /// Adds the streams of a container, whose FIFOs exist.
    pub(crate) fn add(&mut self, directory: &Path, container: &Container) -> Result<(), Error> {
        let PortPipes { stdin, stdout, stderr } = PortPipes::of_container(directory, container.config())?;
        let outputs = [("stdout", stdout), ("stderr", stderr)];
        let outputs = outputs.map(|(stream, pipe)| (stream, pipe.map(SavedPort::Output)));
        for (stream, port) in [("stdin", stdin.map(SavedPort::Input))].into_iter().chain(outputs) {
            self.0.extend(port.map(|port| (name(container.guest_id().as_str(), stream), port)));
        }
        Ok(())
    }

    /// Adds all ports of a saved state, with their numbers. Returns the names of those that are connected to nothing.
    ///
    /// # Errors
    /// `InvalidArgument` if the saved state lacks a stream of a container.
    pub(crate) async fn plug(mut self, qemu: &Qemu, ports: &BTreeMap<String, u32>) -> Result<Vec<String>, Error> {
        let mut unused = Vec::new();
        for (name, number) in ports {
            let port = self.0.remove(name).unwrap_or_else(|| {
                unused.push(name.clone());
                SavedPort::Null
            });
            qemu.add_saved_port(*number, name, port).await.map_err(from_vmm)?;
        }
        match self.0.first_key_value() {
            None => Ok(unused),
            Some((name, _)) => Err(Error::invalid(format!("the checkpoint has no port {name}"))),
        }
    }
}

/// Removes the ports of the process with this id. A port that cannot be removed ends with the virtual machine.
pub(crate) async fn remove_ports(qemu: &Qemu, id: &str) {
    for stream in STREAMS {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_without_an_owner_are_leftovers() {
        let (container, exec, dead) = ("a".repeat(64), "b".repeat(64), "c".repeat(64));
        let ids = BTreeSet::from([container.clone(), exec.clone()]);
        let mut ports: Vec<String> =
            [&container, &exec, &dead].into_iter().flat_map(|id| STREAMS.map(|stream| name(id, stream))).collect();
        ports.extend(["agent-0123456789abcdef", "other", "forward-live", "forward-dead"].map(str::to_owned));
        let forwards = BTreeSet::from(["forward-live".to_owned()]);
        let mut expected = STREAMS.map(|stream| name(&dead, stream)).to_vec();
        expected.push("forward-dead".to_owned());
        assert_eq!(leftovers(&ports, &ids, &forwards), expected);
    }
}
