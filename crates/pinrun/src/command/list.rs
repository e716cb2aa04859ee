use std::{ffi::OsString, io::Write};

use crate::{
    arguments::Global,
    command::state::{ContainerState, print_json, status_name},
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flags, Order, switch, value},
    log::warn,
    state::{self, Directory},
};

/// `list`: lists the containers of the root. A container whose state cannot be read is skipped with a warning.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &[value(&["format", "f"]), switch(&["quiet", "q"])], Order::Mixed)?;
    let mut containers = Vec::new();
    for id in state::list(&global.root)? {
        // The container was removed in the meantime, or does not exist yet.
        let Ok(directory) = Directory::open(&global.root, &id) else { continue };
        if !directory.has_record() {
            continue;
        }
        let state = directory
            .load()
            .and_then(|record| record.status(&directory).map(|status| ContainerState::new(record, status)));
        match state {
            Ok(state) => containers.push(state),
            Err(failure) => warn(global, &format!("{failure}; remove it with delete --force {id}")),
        }
    }
    if flags.is_on("quiet")? {
        return print(containers.iter().map(|container| format!("{}\n", container.id)).collect());
    }
    match flags.text("format")?.unwrap_or("table") {
        "json" => print_json(&containers).map(|()| ExitCode::SUCCESS),
        "table" => print(table(&containers)),
        other => Err(Failure::usage(format!("invalid format option {other:?}: table or json"))),
    }
}

fn table(containers: &[ContainerState]) -> String {
    let head = ["ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER"].map(str::to_owned);
    let rows = containers.iter().map(|c| {
        let status = status_name(c.status).into();
        [c.id.clone(), c.pid.to_string(), status, c.bundle.clone(), c.created.clone(), c.owner.clone()]
    });
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    let widths: Vec<usize> = (0..6).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    let line = |row: &[String; 6]| {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", cells.join("   ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn print(text: String) -> Result<ExitCode, Failure> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| Failure::io("print", error))?;
    Ok(ExitCode::SUCCESS)
}
