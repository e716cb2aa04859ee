//! Global options, before the command's name.

use std::path::PathBuf;

use crate::failure::Failure;

/// How errors are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// logfmt, as logrus writes it.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// Whether the calling user is not root, or is to be treated so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rootless {
    /// As the kernel says.
    #[default]
    Auto,
    Yes,
    No,
}

/// What stands before the command's name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Global {
    /// Folder of all containers' states.
    pub(crate) root: PathBuf,
    /// Where errors and warnings go beside standard error.
    pub(crate) log: Option<PathBuf>,
    pub(crate) log_format: LogFormat,
    pub(crate) debug: bool,
    pub(crate) systemd_cgroup: bool,
    pub(crate) rootless: Rootless,
}

/// The global options, the command's name, and a parser that stands at the command's first argument.
pub(crate) fn parse() -> Result<(Global, String, lexopt::Parser), Failure> {
    let mut parser = lexopt::Parser::from_env();
    let mut global = Global { root: PathBuf::from("/run/pinrun"), ..Global::default() };
    while let Some(argument) = parser.next()? {
        match argument {
            lexopt::Arg::Long("root") => global.root = parser.value()?.into(),
            lexopt::Arg::Value(name) => return Ok((global, name.to_string_lossy().into_owned(), parser)),
            other => return Err(other.unexpected().into()),
        }
    }
    Err(Failure::usage("a command is needed; see pinrun --help"))
}
