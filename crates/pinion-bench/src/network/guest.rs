//! A container in a virtual machine: programs are executed in it by the engine.

use std::{
    net::Ipv4Addr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{
    node::{Node, output},
    running::{Running, Sockets},
};
use crate::engine::Failure;

/// How much longer than a program in a guest its client may run.
const CLIENT_SECONDS: u64 = 30;

/// A container in a guest.
#[derive(Clone)]
pub(super) struct Guest {
    /// Words of the command that executes `pinion` in the node.
    pinion: Vec<String>,
    container: String,
    /// Pids of the processes of the virtual machine, as this process sees them.
    processes: Vec<u32>,
}

impl Guest {
    pub(super) fn new(node: &Node, pinion: &Path, container: &str) -> Result<Self, Failure> {
        let command = node.command(pinion);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let mut guest = Self {
            pinion: words.map(|word| word.to_string_lossy().into_owned()).collect(),
            container: container.to_owned(),
            processes: Vec::new(),
        };
        guest.processes = processes(&guest.inspect("/pod/id")?)?;
        Ok(guest)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.pinion[0]);
        command.args(&self.pinion[1..]).args(words);
        pipes(&mut command);
        command
    }

    /// Returns a value of what the engine knows of the container, by its JSON pointer.
    fn inspect(&self, pointer: &str) -> Result<String, Failure> {
        let text = output(&mut self.command(&["inspect", &self.container]), "pinion inspect")?;
        let value: serde_json::Value = serde_json::from_str(&text)
            .map_err(|e| Failure(format!("pinion inspect printed something unexpected: {e}")))?;
        let found = value.pointer(pointer).or_else(|| value.pointer(&format!("/0{pointer}"))).and_then(|v| v.as_str());
        found.map(str::to_owned).ok_or_else(|| Failure(format!("pinion inspect printed no {pointer}")))
    }

    /// Returns the address of the pod.
    pub(super) fn address(&self) -> Result<Ipv4Addr, Failure> {
        let address = self.inspect("/pod/ip")?;
        address.parse().map_err(|_| Failure(format!("pinion inspect printed the address {address:?}")))
    }

    /// Starts a program in the guest, whose processors are bound to one of the node.
    pub(super) fn spawn(&self, words: &[&str], processor: Option<usize>, seconds: u64) -> Result<Running, Failure> {
        let name = words.first().copied().unwrap_or_default();
        if let Some(processor) = processor {
            for pid in &self.processes {
                let mut bind = Command::new("taskset");
                bind.args(["-a", "-p", "-c", &processor.to_string(), &pid.to_string()]);
                output(&mut bind, "taskset")?;
            }
        }
        let limit = seconds.to_string();
        // The end of the client does not end the program: its id is left in a file.
        let file = format!("/dev/shm/{name}");
        let exec = [
            "exec",
            &self.container,
            "/usr/bin/sh",
            "-ec",
            "echo $$ > \"$0\"; exec \"$@\"",
            &file,
            "env",
            "LC_ALL=C",
            "TMPDIR=/dev/shm",
            "PATH=/usr/sbin:/usr/bin",
            "timeout",
            "-k",
            "1",
            &limit,
        ];
        // `timeout` in the guest ends the program; if the engine hangs, this one ends its client.
        let mut client = Command::new("timeout");
        client.args(["-k", "1", &(seconds + CLIENT_SECONDS).to_string()]).args(&self.pinion).args(exec).args(words);
        let child = pipes(&mut client).spawn();
        let child = child.map_err(|e| Failure(format!("start {name}: {e}")))?;
        let guest = self.clone();
        let end = move || {
            let script = "kill \"$(cat \"$0\")\"";
            // One that has ended is not there.
            let _ =
                output(&mut guest.command(&["exec", &guest.container, "/usr/bin/sh", "-ec", script, &file]), "kill");
        };
        Ok(Running::new(child, name, Box::new(self.clone())).ended_by(end))
    }
}

/// Has a client of the engine print to this process, and ignore interrupts at its terminal.
fn pipes(command: &mut Command) -> &mut Command {
    command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0)
}

impl Sockets for Guest {
    fn table(&self, protocol: &str) -> String {
        let path = format!("/proc/net/{protocol}");
        output(&mut self.command(&["exec", &self.container, "/usr/bin/cat", &path]), "cat").unwrap_or_default()
    }
}

/// Returns the processes of the virtual machine of a pod: those whose command lines have a path of it.
fn processes(sandbox: &str) -> Result<Vec<u32>, Failure> {
    let fail = |e: std::io::Error| Failure(format!("find the processes of a virtual machine: {e}"));
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").map_err(fail)?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let groups = std::fs::read_to_string(PathBuf::from("/proc").join(entry.file_name()).join("cgroup"));
        if groups.is_ok_and(|groups| groups.contains(sandbox)) {
            found.push(pid);
        }
    }
    Ok(found)
}
