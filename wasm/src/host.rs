//! What a module sees of its container: arguments, environment, files, descriptors 0 to 2, sockets.

use wasmtime::{
    Module, Result,
    component::{Component, ResourceTable},
    error::Context,
};
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView, p1::WasiP1Ctx};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::limits::Limits;

/// A module or component with its machine code.
pub(crate) enum Loaded {
    Module(Module),
    Component(Component),
}

/// State of the store of a core module.
pub(crate) struct ModuleHost {
    pub(crate) wasi: WasiP1Ctx,
    pub(crate) limits: Limits,
}

/// State of the store of a component.
pub(crate) struct ComponentHost {
    wasi: WasiCtx,
    http: WasiHttpCtx,
    table: ResourceTable,
    pub(crate) limits: Limits,
}

impl ComponentHost {
    pub(crate) fn new(wasi: WasiCtx) -> Self {
        Self { wasi, http: WasiHttpCtx::new(), table: ResourceTable::new(), limits: Limits }
    }
}

impl WasiView for ComponentHost {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for ComponentHost {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { ctx: &mut self.http, table: &mut self.table, hooks: Default::default() }
    }
}

/// Grants the module what the process has.
///
/// The root of the container is pre-opened, with everything that is mounted in it. WASI preview 1 has no working directory:
/// relative paths are relative to the root there, and runtimes of languages that emulate one find it in `PWD`.
pub(crate) fn wasi(arguments: &[String]) -> Result<WasiCtxBuilder> {
    let mut wasi = WasiCtxBuilder::new();
    wasi.args(arguments).inherit_stdio().inherit_network().allow_ip_name_lookup(true);
    // The module is all that this process does.
    wasi.allow_blocking_current_thread(true);
    wasi.preopened_dir("/", "/", FsPerms::ReadWrite).context("open the root directory")?;
    // WASI has only UTF-8.
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    for (name, value) in variables.filter(|(name, _)| name != "PWD") {
        wasi.env(name, value);
    }
    if let Some(directory) =
        std::env::current_dir().ok().and_then(|directory| directory.into_os_string().into_string().ok())
    {
        wasi.env("PWD", &directory).initial_cwd(directory);
    }
    Ok(wasi)
}
