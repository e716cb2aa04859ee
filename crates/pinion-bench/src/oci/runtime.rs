//! A runtime with runc's command line, the floor program, or the client of an engine.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use crate::program::version;

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

/// The client of an engine, such as docker, podman or nerdctl, parsed from `NAME=COMMAND`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientArgument {
    pub(crate) name: String,
    /// The program, which is searched in PATH, and its global options; or `env`, variables, and these.
    words: Vec<String>,
}

impl FromStr for ClientArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, command) = text.split_once('=').ok_or("not NAME=COMMAND")?;
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        if name.is_empty() || words.is_empty() {
            return Err("not NAME=COMMAND".to_owned());
        }
        Ok(Self { name: name.to_owned(), words })
    }
}

/// The command-line interface of a runtime.
#[derive(Clone, Debug)]
enum Interface {
    /// That of runc.
    Oci { root: PathBuf },
    /// `floor ROOTFS GROUP FILTER PROGRAM…`.
    Floor { rootfs: PathBuf, filter: PathBuf },
    /// That of Docker, with global options, for containers of an image.
    Client { options: Vec<String>, image: String },
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
        Self {
            name: named.name.clone(),
            version: version(&[text(&named.program)]),
            program: named.program.clone(),
            interface: Interface::Oci { root: states.join(&named.name) },
        }
    }

    /// Creates the client of an engine that runs containers of an image.
    pub(crate) fn client(named: &ClientArgument, image: &str) -> Self {
        let (program, version) = (PathBuf::from(&named.words[0]), version(&named.words));
        let interface = Interface::Client { options: named.words[1..].to_vec(), image: image.to_owned() };
        Self { name: named.name.clone(), version, program, interface }
    }

    /// Creates the floor, a program that makes only the system calls that a container requires.
    pub(crate) fn floor(program: PathBuf, rootfs: PathBuf, filter: PathBuf) -> Self {
        let version = "only the required system calls".to_owned();
        Self { name: "floor".to_owned(), version, program, interface: Interface::Floor { rootfs, filter } }
    }

    /// Returns how it is reached.
    pub(crate) fn configuration(&self) -> String {
        match &self.interface {
            Interface::Oci { .. } | Interface::Floor { .. } => "command line".to_owned(),
            Interface::Client { options, .. } => {
                let words = std::iter::once(text(&self.program)).chain(options.iter().cloned());
                let words: Vec<String> = match options.first() {
                    // Without its variables.
                    Some(_) if self.program.as_os_str() == "env" => {
                        words.skip(1).skip_while(|word| word.contains('=')).collect()
                    }
                    _ => words.collect(),
                };
                format!("client of an engine: {}", words.join(" "))
            }
        }
    }

    /// Whether this is an OCI runtime, and neither a client nor the floor, which only supports the equivalent of `run`.
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
            Interface::Client { image, .. } => {
                self.command(&["run", "--rm", "--network", "none", "--name", id, image, "true"])
            }
        }
    }

    /// Returns the command line that pulls the image of a client; `None` for what has no image.
    pub(crate) fn pull(&self) -> Option<Vec<String>> {
        let Interface::Client { image, .. } = &self.interface else { return None };
        Some(self.command(&["pull", image]))
    }

    /// Returns the command line that removes what is left of a container; empty for the floor.
    pub(crate) fn removal(&self, id: &str) -> Vec<String> {
        match &self.interface {
            Interface::Oci { .. } => self.command(&["delete", "--force", id]),
            Interface::Client { .. } => self.command(&["rm", "--force", id]),
            Interface::Floor { .. } => Vec::new(),
        }
    }

    /// Returns the command line of the floor for another program; `None` for all others.
    pub(crate) fn floor_command(&self, group: &str, program: &[&str]) -> Option<Vec<String>> {
        let Interface::Floor { rootfs, filter } = &self.interface else { return None };
        let head = [text(&self.program), text(rootfs), group.to_owned(), text(filter)];
        Some(head.into_iter().chain(program.iter().map(|&word| word.to_owned())).collect())
    }

    /// Returns the command line of a command with its arguments; empty for the floor.
    pub(crate) fn command(&self, arguments: &[&str]) -> Vec<String> {
        let options = match &self.interface {
            Interface::Oci { root } => vec!["--root".to_owned(), text(root)],
            Interface::Client { options, .. } => options.clone(),
            Interface::Floor { .. } => return Vec::new(),
        };
        std::iter::once(text(&self.program))
            .chain(options)
            .chain(arguments.iter().map(|&word| word.to_owned()))
            .collect()
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_runs_and_removes_containers() {
        let named: ClientArgument = "rootless=podman --runtime crun".parse().expect("parsed");
        let client = Runtime::client(&named, "bench:1");
        let words = "podman --runtime crun run --rm --network none --name one bench:1 true";
        assert_eq!(client.run(Path::new("/bundle"), "/group", "one").join(" "), words);
        assert_eq!(client.removal("one").join(" "), "podman --runtime crun rm --force one");
        assert!(!client.is_oci());
        let named: ClientArgument = "other=env HOME=/x podman --runtime=crun".parse().expect("parsed");
        assert_eq!(Runtime::client(&named, "bench:1").configuration(), "client of an engine: podman --runtime=crun");
        for wrong in ["podman", "=podman", "podman= "] {
            assert!(wrong.parse::<ClientArgument>().is_err(), "{wrong}");
        }
    }
}
