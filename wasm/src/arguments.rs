//! The command line. It is written by the engine, so it has no abbreviations and no help.

use std::ffi::OsString;

/// A parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// `engine`
    Engine,
    /// `compile`
    Compile(CompileLimits),
    /// `run`
    Run(Box<Run>),
}

/// Limits of a compilation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CompileLimits {
    /// Size of the address space, in bytes.
    pub(crate) memory: u64,
    /// CPU time, in seconds.
    pub(crate) cpu: u64,
    /// Size of the compiled code, in bytes.
    pub(crate) output: u64,
    /// Process with whose thread that started this process it ends; `None`: it does not.
    pub(crate) parent: Option<i32>,
}

/// What to run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// Descriptor of compiled code; `None`: the module is compiled.
    pub(crate) code: Option<i32>,
    /// Address on which a component is served that exports `wasi:http/incoming-handler`.
    pub(crate) http_address: Option<String>,
    /// Path of the module, and its arguments.
    pub(crate) arguments: Vec<String>,
}

impl Command {
    /// Parses the arguments, of which the first is the name of the program.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut arguments = arguments.into_iter().skip(1);
        let name = arguments.next().and_then(|name| name.into_string().ok()).unwrap_or_default();
        match name.as_str() {
            "engine" => Ok(Self::Engine),
            "compile" => parse_compile(arguments).map(Self::Compile),
            "run" => parse_run(arguments).map(|run| Self::Run(Box::new(run))),
            _ => Err("engine, compile or run is required".to_owned()),
        }
    }
}

fn parse_compile(arguments: impl Iterator<Item = OsString>) -> Result<CompileLimits, String> {
    let mut limits = CompileLimits { memory: 2 << 30, cpu: 120, output: 1 << 30, parent: None };
    for argument in arguments {
        let argument = text(argument)?;
        match argument.split_once('=') {
            Some(("--memory", value)) => limits.memory = number(&argument, value)?,
            Some(("--cpu", value)) => limits.cpu = number(&argument, value)?,
            Some(("--output", value)) => limits.output = number(&argument, value)?,
            Some(("--parent", value)) => limits.parent = Some(number(&argument, value)?),
            _ => return Err(format!("compile: unknown argument {argument:?}")),
        }
    }
    Ok(limits)
}

fn parse_run(mut arguments: impl Iterator<Item = OsString>) -> Result<Run, String> {
    let mut run = Run::default();
    for argument in arguments.by_ref() {
        let argument = text(argument)?;
        match argument.split_once('=') {
            None if argument == "--" => break,
            Some(("--code-fd", value)) => run.code = Some(number(&argument, value)?),
            Some(("--http-address", value)) => run.http_address = Some(value.to_owned()),
            _ => return Err(format!("run: unknown argument {argument:?}")),
        }
    }
    run.arguments = arguments.map(text).collect::<Result<_, _>>()?;
    match run.arguments.is_empty() {
        true => Err("run: no module is named after --".to_owned()),
        false => Ok(run),
    }
}

/// WASI has only UTF-8.
fn text(argument: OsString) -> Result<String, String> {
    argument.into_string().map_err(|argument| format!("argument {argument:?} is not valid UTF-8"))
}

fn number<T: std::str::FromStr>(argument: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{argument:?}: not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, String> {
        Command::parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn the_arguments_of_the_module_are_not_interpreted() {
        let run = Run {
            code: Some(5),
            arguments: vec!["/a.wasm".into(), "--code-fd=7".into(), "--".into()],
            ..Run::default()
        };
        let parsed = parse("pinion-wasm run --code-fd=5 -- /a.wasm --code-fd=7 --");
        assert_eq!(parsed, Ok(Command::Run(Box::new(run))));
    }

    #[test]
    fn unknown_arguments_are_refused() {
        for line in ["x", "x run", "x run --", "x run --code-fd=a -- b", "x compile --fast", "x run /a.wasm"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
