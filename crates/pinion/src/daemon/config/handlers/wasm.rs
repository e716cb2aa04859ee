//! Tables with `kind = "wasm"`.

use std::{path::PathBuf, time::Duration};

use serde::Serialize;

use super::timeout;
use crate::daemon::config::{Reader, value};

/// Largest cache of compiled code, in bytes.
const CACHE_SIZE: u64 = 1 << 30;
/// Largest module, in bytes.
const MODULE_SIZE: u64 = 256 << 20;
/// Most memory of a compilation, in bytes.
const COMPILE_MEMORY: u64 = 2 << 30;
/// Time limit of a compilation.
const COMPILE_TIMEOUT: Duration = Duration::from_secs(120);
/// Annotations of pods and containers that request a module.
const ANNOTATIONS: [&str; 2] = ["module.wasm.image/variant", "run.oci.handler"];

/// The program that runs WebAssembly modules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct WasmHandler {
    pub(crate) binary: PathBuf,
    /// Directory of compiled code; `None`: one in the data directory of the daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache: Option<PathBuf>,
    pub(crate) cache_size_max: u64,
    pub(crate) module_size_max: u64,
    pub(crate) compile_memory_max: u64,
    #[serde(serialize_with = "value::write_duration")]
    pub(crate) compile_timeout: Duration,
    /// Annotations of pods and containers that are considered.
    pub(crate) allowed_annotations: Vec<String>,
}

/// Reads a table.
pub(super) fn read(from: &mut Reader, table: [&str; 2]) -> WasmHandler {
    // An empty list is a choice.
    let allowed_annotations = from.optional_list_in(table, "allowed_annotations", value::annotation);
    let allowed_annotations = allowed_annotations.unwrap_or_else(|| ANNOTATIONS.map(str::to_owned).to_vec());
    WasmHandler {
        binary: from.required_in(table, "binary", value::absolute).unwrap_or_default(),
        cache: from.value_in(table, "cache", value::absolute),
        cache_size_max: from.value_in(table, "cache_size_max", value::positive).unwrap_or(CACHE_SIZE),
        module_size_max: from.value_in(table, "module_size_max", value::positive).unwrap_or(MODULE_SIZE),
        compile_memory_max: from.value_in(table, "compile_memory_max", value::positive).unwrap_or(COMPILE_MEMORY),
        compile_timeout: from.value_in(table, "compile_timeout", timeout).unwrap_or(COMPILE_TIMEOUT),
        allowed_annotations,
    }
}
