//! The types of the CNI reference plugins as one program: a link to it with the name of a type is that plugin. Otherwise
//! the first argument is the type.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![cfg_attr(not(test), no_main)]
#![cfg_attr(test, allow(dead_code))]

use std::{ffi::OsString, io, path::Path};

use cni_plugins::{PluginType, VERSIONS, program};

#[cfg(not(test))]
syscall::program_entry!(run);

fn run() -> u8 {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let file = Path::new(&name).file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
    let first = arguments.next();
    match PluginType::from_name(&file).or_else(|| first.as_ref().and_then(of_argument)) {
        Some(kind) if std::env::var_os("CNI_COMMAND").is_none_or(|command| command.is_empty()) => {
            eprintln!("CNI {} plugin of Pinion {}", kind.name(), env!("CARGO_PKG_VERSION"));
            eprintln!("CNI protocol versions supported: {}", VERSIONS.join(", "));
            0
        }
        Some(kind) => {
            let variable =
                |name: &'static str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
            program::run(kind, program::Context::default(), &variable, io::stdin().lock(), io::stdout().lock())
        }
        None => usage(first.as_ref()),
    }
}

fn of_argument(argument: &OsString) -> Option<PluginType> {
    argument.to_str().and_then(PluginType::from_name)
}

/// Prints what the program is. With `--list` the names of the types, for scripts that link them.
fn usage(argument: Option<&OsString>) -> u8 {
    let names = PluginType::ALL.map(PluginType::name);
    match argument.and_then(|argument| argument.to_str()) {
        Some("--list") => {
            println!("{}", names.join("\n"));
            0
        }
        Some("--version") => {
            println!("pinion-cni {}", env!("CARGO_PKG_VERSION"));
            0
        }
        _ => {
            eprintln!("usage: a link to this program with the name of a type, or: pinion-cni TYPE");
            eprintln!("types: {}", names.join(" "));
            2
        }
    }
}
