//! A runtime with runc's command line, or the floor program.

use std::{
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
};

/// A runtime to measure, parsed from `NAME=PROGRAM`.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeArgument {
    pub(crate) name: String,
    program: PathBuf,
}

impl FromStr for RuntimeArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, program) = text.split_once('=').ok_or("not NAME=PROGRAM")?;
        let program = std::path::absolute(program).map_err(|error| format!("resolve path {program}: {error}"))?;
        if !program.is_file() {
            return Err(format!("{}: not a file", program.display()));
        }
        Ok(Self { name: name.to_owned(), program })
    }
}

/// The command-line interface of a runtime.
#[derive(Clone, Debug)]
enum Interface {
    /// That of runc.
    Oci { root: PathBuf },
    /// `floor ROOTFS GROUP FILTER PROGRAM…`.
    Floor { rootfs: PathBuf, filter: PathBuf },
}

/// A runtime that is measured.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    pub(crate) name: String,
    pub(crate) version: String,
    program: PathBuf,
    interface: Interface,
}

impl Runtime {
    /// Creates a runtime with its own state directory below `states`.
    pub(crate) fn new(named: &RuntimeArgument, states: &Path) -> Self {
        let output = Command::new(&named.program).arg("--version").output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        Self {
            name: named.name.clone(),
            version: text.lines().next().unwrap_or("?").to_owned(),
            program: named.program.clone(),
            interface: Interface::Oci { root: states.join(&named.name) },
        }
    }

    /// Creates the floor, a program that makes only the system calls that a container requires.
    pub(crate) fn floor(program: PathBuf, rootfs: PathBuf, filter: PathBuf) -> Self {
        let version = "only the required system calls".to_owned();
        Self { name: "floor".to_owned(), version, program, interface: Interface::Floor { rootfs, filter } }
    }

    /// Whether this is an OCI runtime, and not the floor, which only supports the equivalent of `run`.
    pub(crate) fn is_oci(&self) -> bool {
        matches!(self.interface, Interface::Oci { .. })
    }

    /// Returns the command line that runs the program of a bundle in the foreground.
    pub(crate) fn run(&self, bundle: &Path, group: &str, id: &str) -> Vec<String> {
        match &self.interface {
            Interface::Oci { .. } => self.command(&["run", "--bundle", &text(bundle), id]),
            Interface::Floor { rootfs, filter } => {
                vec![text(&self.program), text(rootfs), group.to_owned(), text(filter), "/bin/true".to_owned()]
            }
        }
    }

    /// Returns the command line of the floor for another program; `None` for an OCI runtime.
    pub(crate) fn floor_command(&self, group: &str, program: &[&str]) -> Option<Vec<String>> {
        let Interface::Floor { rootfs, filter } = &self.interface else { return None };
        let head = [text(&self.program), text(rootfs), group.to_owned(), text(filter)];
        Some(head.into_iter().chain(program.iter().map(|&word| word.to_owned())).collect())
    }

    /// Returns the command line of a command with its arguments; empty for the floor.
    pub(crate) fn command(&self, arguments: &[&str]) -> Vec<String> {
        let Interface::Oci { root } = &self.interface else { return Vec::new() };
        let head = [text(&self.program), "--root".to_owned(), text(root)];
        head.into_iter().chain(arguments.iter().map(|&word| word.to_owned())).collect()
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
