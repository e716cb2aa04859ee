use std::{ffi::OsString, io::Write};

use crate::{
    arguments::Global,
    command::state::{Printed, print_json, word},
    exit_code::ExitCode,
    failure::{Failure, warn},
    flags::{Flags, Order, switch, value},
    state::{self, Directory},
};

/// `list`: every container of the root. One that cannot be read is told and left out; it never hides the others.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &[value(&["format", "f"]), switch(&["quiet", "q"])], Order::Mixed)?;
    let mut containers = Vec::new();
    for id in state::list(&global.root)? {
        // Removed just now, or not there yet.
        let Ok(directory) = Directory::open(&global.root, &id) else { continue };
        if !directory.has_record() {
            continue;
        }
        let found =
            directory.load().and_then(|record| record.status(&directory).map(|status| Printed::new(record, status)));
        match found {
            Ok(printed) => containers.push(printed),
            Err(failure) => warn(global, &format!("{failure}; delete --force {id} removes it")),
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

fn table(containers: &[Printed]) -> String {
    let head = ["ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER"].map(str::to_owned);
    let rows = containers.iter().map(|c| {
        [c.id.clone(), c.pid.to_string(), word(c.status).into(), c.bundle.clone(), c.created.clone(), c.owner.clone()]
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
