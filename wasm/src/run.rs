//! `pinion-wasm run`: the process of a container.

use std::process::ExitCode;

use tokio::runtime::{Builder, Runtime};
use wasmtime::{
    Engine, Linker, Module, Result, Store, bail,
    component::{self, Component},
    error::Context,
};
use wasmtime_wasi::{p1, p2};

use crate::{
    arguments::Run,
    code, compile, engine, exit,
    host::{ComponentHost, Loaded, ModuleHost, wasi},
    http,
    limits::Limits,
    signals,
};

/// Largest module that is compiled in the container, in bytes.
const MODULE_MAX: u64 = 256 << 20;
/// The export of a component that is served over HTTP, without its version.
const HTTP_HANDLER: &str = "wasi:http/incoming-handler@";

/// Runs a module, and returns the exit code of the process.
pub(crate) fn run(run: &Run) -> ExitCode {
    let name = &run.arguments[0];
    // Before Linux 6.14 a program that is executed by a descriptor is named after the number of that.
    let _ = rustix::thread::set_name(c"pinion-wasm");
    let prepared = signals::handle().and_then(|()| load(run));
    let (engine, loaded) = match prepared {
        Ok(loaded) => loaded,
        Err(error) => return exit::not_executable(name, &error),
    };
    match loaded {
        Loaded::Module(module) => finish(name, run_module(&engine, &module, run)),
        Loaded::Component(component) if is_http_handler(&engine, &component) => {
            finish(name, http::serve(&engine, &component, run))
        }
        Loaded::Component(component) => finish(name, run_component(&engine, &component, run)),
    }
}

/// How a module ended, or why it did not run.
pub(crate) type Outcome = Result<Result<Result<(), ()>>>;

fn finish(name: &str, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(outcome) => exit::of_module(name, outcome),
        Err(error) => exit::not_executable(name, &error),
    }
}

fn load(run: &Run) -> Result<(Engine, Loaded)> {
    let engine = engine::engine()?;
    let loaded = match run.code {
        Some(descriptor) => code::load(&engine, descriptor)?,
        None => compile_here(&engine, &run.arguments[0])?,
    };
    Ok((engine, loaded))
}

/// Compiles a module of the container, at the expense of the container.
fn compile_here(engine: &Engine, path: &str) -> Result<Loaded> {
    use std::io::Read;
    let mut binary = Vec::new();
    let file = std::fs::File::open(path).context("open the module")?;
    file.take(MODULE_MAX + 1).read_to_end(&mut binary).context("read the module")?;
    if binary.len() as u64 > MODULE_MAX {
        bail!("the module is larger than {MODULE_MAX} bytes");
    }
    match compile::kind(&binary)? {
        compile::Kind::Module => Module::from_binary(engine, &binary).map(Loaded::Module),
        compile::Kind::Component => Component::from_binary(engine, &binary).map(Loaded::Component),
    }
}

fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("start the runtime")
}

fn run_module(engine: &Engine, module: &Module, run: &Run) -> Outcome {
    let mut linker: Linker<ModuleHost> = Linker::new(engine);
    p1::add_to_linker_async(&mut linker, |host| &mut host.wasi)?;
    let wasi = wasi(&run.arguments)?.build_p1();
    let mut store = Store::new(engine, ModuleHost { wasi, limits: Limits });
    store.limiter(|host| &mut host.limits);
    runtime()?.block_on(async {
        let instance = linker.instantiate_async(&mut store, module).await;
        let instance = match instance {
            // The start function of the module ran.
            Err(error) if error.is::<wasmtime::Trap>() || error.is::<wasmtime_wasi::I32Exit>() => {
                return Ok(Err(error));
            }
            instance => instance?,
        };
        let start = instance.get_typed_func::<(), ()>(&mut store, "_start").context("the module has no _start")?;
        Ok(start.call_async(&mut store, ()).await.map(Ok))
    })
}

fn run_component(engine: &Engine, component: &Component, run: &Run) -> Outcome {
    let linker = component_linker(engine)?;
    let mut store = component_store(engine, run)?;
    runtime()?.block_on(async {
        let command = p2::bindings::Command::instantiate_async(&mut store, component, &linker).await?;
        Ok(command.wasi_cli_run().call_run(&mut store).await)
    })
}

/// Returns the linker for components: the world `wasi:cli/command`, and `wasi:http`.
pub(crate) fn component_linker(engine: &Engine) -> Result<component::Linker<ComponentHost>> {
    let mut linker = component::Linker::new(engine);
    p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    Ok(linker)
}

/// Returns a store for an instance of a component.
pub(crate) fn component_store(engine: &Engine, run: &Run) -> Result<Store<ComponentHost>> {
    let mut store = Store::new(engine, ComponentHost::new(wasi(&run.arguments)?.build()));
    store.limiter(|host| &mut host.limits);
    Ok(store)
}

fn is_http_handler(engine: &Engine, component: &Component) -> bool {
    component.component_type().exports(engine).any(|(name, _)| name.starts_with(HTTP_HANDLER))
}
