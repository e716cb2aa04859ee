//! `pinion netns`: network namespaces that are pinned in a directory, by pods or by any program. Needs no daemon.

mod inside;
mod processes;

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use netns::{Namespace, PinDir, ThreadGuard};
use serde_json::{Value, json};

use crate::{
    Failure,
    failure::{NOT_EXECUTABLE, NOT_FOUND},
    output,
    table::Table,
};
use inside::Inside;
use processes::Processes;

/// Where the namespaces of `pinion netns pin` are mounted, in a directory for each directory that shows them. It is not below
/// that, because ip(8) takes everything in there for a namespace.
const STORE: &str = "/run/pinion-netns";
/// Number of addresses of a namespace in the list.
const LISTED: usize = 4;

/// Arguments of `pinion netns`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory in which namespaces are pinned
    #[arg(long, value_name = "DIRECTORY", default_value = "/run/netns")]
    directory: PathBuf,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the pinned namespaces
    #[command(visible_alias = "list")]
    Ls,
    /// Show links, addresses, routes and processes of namespaces as JSON
    Inspect {
        /// Name of the pin
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Pin a new namespace, or one of a process, so that it exists until it is deleted
    Pin {
        /// Name of the pin
        name: String,
        /// Pin the namespace of this process
        #[arg(long, conflicts_with = "path")]
        pid: Option<u32>,
        /// Pin the namespace of this file, such as another pin
        #[arg(long)]
        path: Option<PathBuf>,
    },
    /// Delete pins that `pinion netns pin` made
    #[command(visible_alias = "rm")]
    Delete {
        /// Name of the pin
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Execute a program in a namespace
    #[command(override_usage = "pinion netns exec <NAME> <COMMAND>...")]
    Exec {
        /// Name of the pin, and the program with its arguments
        #[arg(required = true, num_args = 2.., trailing_var_arg = true, value_names = ["NAME", "COMMAND"])]
        program: Vec<String>,
    },
}

pub(crate) fn run(args: Args, json: bool) -> Result<u8, Failure> {
    let directory = &args.directory;
    match args.verb {
        Verb::Ls => list(directory, json),
        Verb::Inspect { names } => inspect(directory, &names),
        Verb::Pin { name, pid, path } => pin(directory, &name, pid, path.as_deref()),
        Verb::Delete { names } => delete(directory, &names),
        Verb::Exec { program } => exec(directory, &program),
    }
}

impl From<netns::Error> for Failure {
    fn from(error: netns::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// A pin and its namespace.
struct Pin {
    name: String,
    path: PathBuf,
    namespace: Namespace,
    owner: &'static str,
}

fn open(directory: &Path, name: &str) -> Result<Pin, Failure> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        return Err(Failure::usage(format!("{name:?} is not a name of a pin; `pinion netns ls` shows them")));
    }
    let path = directory.join(name);
    let namespace = Namespace::open(&path)?;
    // Pins of Pinion are links to where the namespace is mounted; ip(8) and others mount it on the file itself.
    let owner = match fs::read_link(&path) {
        Ok(target) if target.starts_with(STORE) => "pinned",
        Ok(_) => "pod",
        Err(_) => "other",
    };
    Ok(Pin { name: name.to_owned(), path, namespace, owner })
}

/// Returns the pins of a directory by name. What disappears in the meantime, or is not a namespace, is left out.
fn pins(directory: &Path) -> Result<Vec<Pin>, Failure> {
    let fail = |e: std::io::Error| Failure::new(format!("read {}: {e}", directory.display()));
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(fail)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(fail)?.file_name().into_string());
    }
    names.sort();
    Ok(names.iter().filter_map(|name| open(directory, name).ok()).collect())
}

fn list(directory: &Path, json: bool) -> Result<u8, Failure> {
    let (pins, processes) = (pins(directory)?, Processes::now()?);
    let mut rows = Vec::new();
    for pin in &pins {
        let inside = Inside::read(&pin.namespace)?;
        rows.push((pin, pin.namespace.id()?, inside, processes.of(&pin.namespace)?));
    }
    if json {
        let all = rows.iter().map(|(pin, id, inside, processes)| {
            json!({
                "name": pin.name, "id": id.0, "owner": pin.owner, "path": pin.path, "addresses": inside.global_addresses(),
                "links": inside.links.len(), "processes": processes.len(),
            })
        });
        output::json(&all.collect::<Vec<Value>>())?;
        return Ok(0);
    }
    let mut table = Table::new(&["NAME", "ID", "OWNER", "LINKS", "PROCESSES", "ADDRESSES"]);
    for (pin, id, inside, processes) in &rows {
        let mut addresses = inside.global_addresses();
        let more = addresses.len().saturating_sub(LISTED);
        addresses.truncate(LISTED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let numbers = [id.to_string(), inside.links.len().to_string(), processes.len().to_string()];
        let [id, links, processes] = &numbers;
        table.row([&pin.name, id, pin.owner, links, processes, &(addresses.join(" ") + &more)]);
    }
    table.print()?;
    Ok(0)
}

fn inspect(directory: &Path, names: &[String]) -> Result<u8, Failure> {
    let processes = Processes::now()?;
    let mut all = Vec::new();
    for name in names {
        let pin = open(directory, name)?;
        let mut value = json!({
            "name": pin.name,
            "path": pin.path,
            "owner": pin.owner,
            "id": pin.namespace.id()?.0,
            "identity": pin.namespace.identity()?.to_string(),
            "processes": processes.of(&pin.namespace)?,
        });
        if let (Some(value), Value::Object(inside)) = (value.as_object_mut(), Inside::read(&pin.namespace)?.json()) {
            value.extend(inside);
        }
        all.push(value);
    }
    output::json(&all)?;
    Ok(0)
}

/// Opens the pins of a directory. Each has a store of its own: the same name may be pinned in several.
fn pin_dir(directory: &Path) -> Result<PinDir, Failure> {
    let fail = |e: std::io::Error| Failure::new(format!("open {}: {e}", directory.display()));
    let absolute = std::path::absolute(directory).map_err(fail)?;
    let name = absolute.to_string_lossy().replace('%', "%25").replace('/', "%");
    Ok(PinDir::open(&Path::new(STORE).join(name), &absolute)?)
}

fn pin(directory: &Path, name: &str, pid: Option<u32>, path: Option<&Path>) -> Result<u8, Failure> {
    let namespace = match (pid, path) {
        (Some(pid), _) => Namespace::open(Path::new(&format!("/proc/{pid}/ns/net")))?,
        (None, Some(path)) => Namespace::open(path)?,
        (None, None) => Namespace::create()?,
    };
    let path = pin_dir(directory)?.pin(name, &namespace)?;
    output::line(&path.display().to_string())?;
    Ok(0)
}

/// Deletes all pins that it can delete, and fails if one was left.
fn delete(directory: &Path, names: &[String]) -> Result<u8, Failure> {
    let pins = pin_dir(directory)?;
    let mut failures = Vec::new();
    for name in names {
        let outcome = match pins.is_pinned(name) {
            Ok(true) => pins.unpin(name).map_err(|error| error.to_string()),
            Ok(false) => Err(refusal(directory, name)),
            Err(error) => Err(error.to_string()),
        };
        failures.extend(outcome.err());
    }
    if failures.is_empty() { Ok(0) } else { Err(Failure::new(failures.join("\n"))) }
}

fn refusal(directory: &Path, name: &str) -> String {
    match open(directory, name) {
        Ok(Pin { owner: "pod", .. }) => {
            format!("namespace {name} belongs to a pod; remove it with `pinion pods rm {name}`")
        }
        Ok(_) => format!(
            "namespace {name} was pinned by another program; delete it with that, as by `ip netns delete {name}`"
        ),
        Err(_) => format!("namespace {name} is not pinned"),
    }
}

/// Replaces this process by a program in the namespace.
fn exec(directory: &Path, program: &[String]) -> Result<u8, Failure> {
    let (Some(name), Some(file)) = (program.first(), program.get(1)) else {
        return Err(Failure::usage("a name and a program are needed"));
    };
    let pin = open(directory, name)?;
    let mut command = Command::new(file);
    command.args(&program[2..]);
    // On a thread of its own: the others stay where they are until execve(2) ends them.
    let executed = thread::scope(|scope| {
        let switched = thread::Builder::new().spawn_scoped(scope, || {
            let guard = ThreadGuard::new()?;
            guard.switch(&pin.namespace)?;
            Ok::<_, Failure>(command.exec())
        });
        switched.map(thread::ScopedJoinHandle::join)
    });
    match executed {
        Ok(Ok(Ok(error))) => {
            let code = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
            Err(Failure::new(format!("execute {file}: {error}")).with_code(code))
        }
        Ok(Ok(Err(failure))) => Err(failure),
        Ok(Err(_)) => Err(Failure::new("the thread that executes the program panicked")),
        Err(error) => Err(Failure::new(format!("start a thread: {error}"))),
    }
}
