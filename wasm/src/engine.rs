//! The engine: its settings, and the version that names compiled code.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io::Write,
    sync::Arc,
};

use wasmtime::{Config, Engine, OptLevel, Result};

use crate::code;

/// Stack of a module, in bytes. A deeper recursion traps.
const STACK: usize = 1 << 20;
/// Stack of a module with that of the functions of the host which it calls, in bytes.
const FIBER_STACK: usize = 2 << 20;

/// Returns the engine. Code that it compiled can be loaded by every engine with the same [`version`].
pub(crate) fn engine() -> Result<Engine> {
    let mut config = Config::new();
    config
        .cranelift_opt_level(OptLevel::Speed)
        .max_wasm_stack(STACK)
        .async_stack_size(FIBER_STACK)
        // The table from machine code to offsets of the module is larger than the code, and only backtraces use it.
        .generate_address_map(false)
        .native_unwind_info(false)
        .with_custom_code_memory(Some(Arc::new(code::Protection)));
    Engine::new(&config)
}

/// Returns the version of wasmtime with a hash of all that compiled code depends on: settings, and features of the CPU.
pub(crate) fn version(engine: &Engine) -> String {
    // Its keys are constant.
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{}-{:016x}", env!("WASMTIME_VERSION"), hasher.finish())
}

/// Prints the version.
pub(crate) fn print_version() -> Result<()> {
    writeln!(std::io::stdout(), "{}", version(&engine()?))?;
    Ok(())
}
