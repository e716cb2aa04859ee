use std::{collections::HashSet, ffi::OsString, io::Write, process::Command};

use rustix::process::Pid;

use crate::{
    arguments::Global,
    command::state::print_json,
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flags, Order, text, value},
    state::Directory,
};

/// `ps ID [PS OPTIONS]`: lists the container's processes, as seen from the host.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &[value(&["format", "f"])], Order::Strict)?;
    let (id, options) = flags.words.split_first().ok_or_else(|| Failure::usage("a container id is required"))?;
    let directory = Directory::open(&global.root, text(id)?)?;
    let pids = directory.load()?.group()?.pids()?;
    let pids: Vec<i32> = pids.into_iter().map(Pid::as_raw_pid).collect();
    match flags.text("format")?.unwrap_or("table") {
        "json" => print_json(&pids)?,
        "table" => print(&table(options)?, &pids.into_iter().collect())?,
        other => return Err(Failure::usage(format!("invalid format option {other:?}: table or json"))),
    }
    Ok(ExitCode::SUCCESS)
}

fn table(options: &[OsString]) -> Result<String, Failure> {
    let mut ps = Command::new("ps");
    if options.is_empty() {
        ps.arg("-ef");
    }
    let output =
        ps.args(options).output().map_err(|error| Failure::io("run ps (install procps, or use -f json)", error))?;
    if !output.status.success() {
        return Err(Failure::new(format!("ps: {}", String::from_utf8_lossy(&output.stderr).trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Prints the header and the rows of these processes.
fn print(table: &str, pids: &HashSet<i32>) -> Result<(), Failure> {
    let mut lines = table.lines();
    let header = lines.next().unwrap_or_default();
    let column = header.split_whitespace().position(|name| name == "PID");
    let column =
        column.ok_or_else(|| Failure::new("ps: the output has no PID column; remove the options that hide it"))?;
    let rows = lines.filter(|line| {
        line.split_whitespace().nth(column).and_then(|pid| pid.parse().ok()).is_some_and(|pid| pids.contains(&pid))
    });
    let text: String = std::iter::once(header).chain(rows).map(|line| format!("{line}\n")).collect();
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| Failure::io("print", error))
}
