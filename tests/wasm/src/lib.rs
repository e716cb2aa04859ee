//! Modules and images for the tests of WebAssembly modules as containers. `make test-wasm` runs them; they need
//! `pinion-wasm` in `PINION_BIN`.

#![forbid(unsafe_code)]

mod http;
mod layout;
mod modules;

use std::path::PathBuf;

pub use http::{HTTP_WAIT, http_component};
pub use layout::{Layout, artifact, compat};
pub use modules::{
    ARGUMENTS, COMPONENT, COMPONENT_ERROR, DEEP, ENVIRONMENT, EXIT, GROW, HELLO, IDLE, LOOP, TABLE, TABLE_GROW,
    TERMINAL, TOUCH, TRAP, read_file, slow,
};

/// Returns the binary of a module or component in the text format.
#[must_use]
pub fn binary(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("a valid module")
}

/// Returns the path of `pinion-wasm`.
#[must_use]
pub fn program() -> PathBuf {
    let directory =
        std::env::var_os("PINION_BIN").expect("PINION_BIN is a directory with the programs: run `make test-wasm`");
    PathBuf::from(directory).join("pinion-wasm")
}
