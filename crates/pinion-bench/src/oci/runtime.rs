//! A runtime behind runc's command line, or the floor.

use std::{
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
};

/// As given: NAME=PROGRAM.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    program: PathBuf,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, program) = text.split_once('=').ok_or("NAME=PROGRAM is needed")?;
        let program = std::path::absolute(program).map_err(|error| format!("{program}: {error}"))?;
        if !program.is_file() {
            return Err(format!("{}: no such program", program.display()));
        }
        Ok(Self { name: name.to_owned(), program })
    }
}

/// How it is called.
#[derive(Clone, Debug)]
enum Calls {
    /// As runc.
    Oci { root: PathBuf },
    /// `floor ROOTFS GROUP FILTER PROGRAM…`
    Floor { rootfs: PathBuf, filter: PathBuf },
}

/// One that is measured.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    pub(crate) name: String,
    pub(crate) version: String,
    program: PathBuf,
    calls: Calls,
}

impl Runtime {
    /// With a directory of its own for states.
    pub(crate) fn new(named: &Named, states: &Path) -> Self {
        let output = Command::new(&named.program).arg("--version").output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        Self {
            name: named.name.clone(),
            version: text.lines().next().unwrap_or("?").to_owned(),
            program: named.program.clone(),
            calls: Calls::Oci { root: states.join(&named.name) },
        }
    }

    /// The program that makes the system calls of a container and nothing else.
    pub(crate) fn floor(program: PathBuf, rootfs: PathBuf, filter: PathBuf) -> Self {
        let version = "the system calls alone".to_owned();
        Self { name: "floor".to_owned(), version, program, calls: Calls::Floor { rootfs, filter } }
    }

    /// Whether it is a whole runtime, and not only the floor of `run`.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.calls, Calls::Oci { .. })
    }

    /// `run` of the bundle's program in the foreground.
    pub(crate) fn run(&self, bundle: &Path, group: &str, id: &str) -> Vec<String> {
        match &self.calls {
            Calls::Oci { .. } => self.words(&["run", "--bundle", &text(bundle), id]),
            Calls::Floor { rootfs, filter } => {
                vec![text(&self.program), text(rootfs), group.to_owned(), text(filter), "/bin/true".to_owned()]
            }
        }
    }

    /// The same with another program, for the floor, which has no bundle.
    pub(crate) fn floor_words(&self, group: &str, program: &[&str]) -> Option<Vec<String>> {
        let Calls::Floor { rootfs, filter } = &self.calls else { return None };
        let head = [text(&self.program), text(rootfs), group.to_owned(), text(filter)];
        Some(head.into_iter().chain(program.iter().map(|&word| word.to_owned())).collect())
    }

    /// A command with its arguments; the floor has none.
    pub(crate) fn words(&self, arguments: &[&str]) -> Vec<String> {
        let Calls::Oci { root } = &self.calls else { return Vec::new() };
        let head = [text(&self.program), "--root".to_owned(), text(root)];
        head.into_iter().chain(arguments.iter().map(|&word| word.to_owned())).collect()
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
