//! The processes of a node, from `/proc`.

use std::path::PathBuf;

use crate::Host;

/// Longest part of a command line that is kept, in bytes.
const COMMAND_LINE_MAX: usize = 64 * 1024;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// The name (`comm`), at most 15 bytes.
    pub(crate) name: String,
    /// The command line, starting with the program.
    pub(crate) arguments: Vec<String>,
    /// The program; `None` if it cannot be read.
    pub(crate) program: Option<PathBuf>,
}

/// Lists the processes that have a command line: kernel threads and zombies have none.
pub(crate) fn list(host: &Host) -> Vec<Process> {
    let pids = host.list("/proc").into_iter().filter_map(|name| name.parse().ok());
    let mut processes: Vec<Process> = pids.filter_map(|pid| read(host, pid)).collect();
    processes.sort_by_key(|process| process.pid);
    processes
}

fn read(host: &Host, pid: u32) -> Option<Process> {
    let command_line = host.read(format!("/proc/{pid}/cmdline"))?;
    let end = command_line.floor_char_boundary(COMMAND_LINE_MAX);
    let arguments: Vec<String> = command_line[..end].split_terminator('\0').map(str::to_owned).collect();
    if arguments.is_empty() {
        return None;
    }
    let name = host.value(format!("/proc/{pid}/comm"))?;
    Some(Process { pid, name, arguments, program: host.link(format!("/proc/{pid}/exe")) })
}
