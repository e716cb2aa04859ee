//! `pinion-wasm compile`: a module on standard input, compiled code on standard output.

use std::{
    io::{Read, Write},
    process::ExitCode,
};

use wasmtime::{Engine, Result, bail, error::Context};

use crate::{arguments::CompileLimits, engine, exit, sandbox};

/// First bytes of every WebAssembly binary.
const MAGIC: &[u8] = b"\0asm";
/// Layer of a core module (binary format, preamble): `version` and `layer` of four bytes.
const CORE: [u8; 4] = [1, 0, 0, 0];
/// Layer of a component: its version, for tools before 1.0, and 1.
const COMPONENT_LAYER: [u8; 2] = [1, 0];

/// Compiles a module or component. It is hostile, so the sandbox is entered before its first byte is read. The exit code
/// distinguishes an invalid module from a node that could not compile it.
pub(crate) fn compile(limits: &CompileLimits) -> ExitCode {
    let read = || -> Result<(Engine, Vec<u8>)> {
        let engine = engine::engine()?;
        sandbox::enter(limits)?;
        let mut module = Vec::new();
        std::io::stdin().lock().read_to_end(&mut module).context("read the module")?;
        Ok((engine, module))
    };
    let (engine, module) = match read() {
        Ok(read) => read,
        Err(error) => return exit::of_the_node(&error),
    };
    let code = match compile_binary(&engine, &module) {
        Ok(code) => code,
        Err(error) => return exit::failure(&error),
    };
    match std::io::stdout().lock().write_all(&code).context("write the compiled code") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::of_the_node(&error),
    }
}

/// Compiles the binary of a module or component.
pub(crate) fn compile_binary(engine: &Engine, binary: &[u8]) -> Result<Vec<u8>> {
    match kind(binary)? {
        Kind::Module => engine.precompile_module(binary),
        Kind::Component => engine.precompile_component(binary),
    }
}

/// What a binary is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A core module.
    Module,
    /// A component.
    Component,
}

/// Returns what a binary is, by its preamble.
pub(crate) fn kind(binary: &[u8]) -> Result<Kind> {
    match binary.get(..8) {
        Some(head) if !head.starts_with(MAGIC) => bail!("not a WebAssembly binary: it does not start with \\0asm"),
        Some(head) if head[4..] == CORE => Ok(Kind::Module),
        Some(head) if head[6..] == COMPONENT_LAYER => Ok(Kind::Component),
        Some(head) => bail!("unknown version of the binary format: {:?}", &head[4..]),
        None => bail!("not a WebAssembly binary: shorter than 8 bytes"),
    }
}
