//! Runtime handlers: what runs the containers of a pod.

mod facts;
mod program;
mod query;
mod shim_path;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;

use super::{Hypervisor, Wasm, hypervisor::PodOverhead};
use vm::qemu::Accelerator;

use crate::{
    Error, ShimHandler,
    handler::{OciHandler, RuntimeFacts},
};
use program::{External, Program};
pub(crate) use shim_path::{PATH, find_shim};

/// How long a list of the handlers waits for a program that was not run yet.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// The runtime handlers of this node.
pub(crate) struct Handlers {
    /// Name of the default handler in addition to the empty one; may be empty.
    default: String,
    /// Those with a program, by name.
    external: BTreeMap<String, Arc<Program>>,
    vms: BTreeMap<String, Arc<Hypervisor>>,
    wasm: Option<Arc<Wasm>>,
}

/// A runtime handler and its features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerInfo {
    /// Its name; empty for the default handler.
    pub name: String,
    /// What runs its containers.
    pub kind: HandlerKind,
    /// Whether its containers may have mounts that are read-only recursively.
    pub recursive_readonly_mounts: bool,
    /// Whether its pods may have user namespaces, on a node that supports them.
    pub user_namespaces: bool,
}

/// What runs the containers of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerKind {
    /// The monitor itself.
    Native,
    /// A program with the command line of runc.
    Oci {
        /// The program.
        binary: PathBuf,
        /// What it reports about itself, or why it cannot run pods.
        facts: Result<RuntimeFacts, String>,
    },
    /// A containerd shim.
    Shim {
        /// The shim: its path, or its name.
        binary: PathBuf,
        /// What it reports about itself and its OCI runtime, or why it cannot run pods.
        facts: Result<RuntimeFacts, String>,
    },
    /// A virtual machine for each pod.
    Vm {
        /// The program that runs it.
        hypervisor: PathBuf,
        /// What executes the instructions of guests, `kvm` or `emulation`, or why it cannot run pods.
        accelerator: Result<&'static str, String>,
        /// The overhead for a RuntimeClass.
        overhead: PodOverhead,
    },
    /// The monitor itself, with an interpreter for WebAssembly modules.
    Wasm {
        /// The interpreter.
        binary: PathBuf,
        /// The version of its engine, or why it cannot run modules.
        version: Result<String, String>,
    },
}

/// What runs the containers of a pod.
#[derive(Clone, Copy)]
pub(crate) enum Handler<'a> {
    /// The monitor itself.
    Native,
    /// A program with the command line of runc, run by the monitor.
    Oci(&'a OciHandler),
    /// A containerd shim, started by the monitor.
    Shim(&'a ShimHandler),
    /// The agent in a virtual machine.
    Vm(&'a Arc<Hypervisor>),
    /// The monitor itself; programs that are WebAssembly modules are executed by an interpreter.
    Wasm(&'a Arc<Wasm>),
}

impl Handlers {
    pub(crate) fn new(
        default: String,
        oci: impl IntoIterator<Item = OciHandler>,
        shims: impl IntoIterator<Item = ShimHandler>,
        vms: impl IntoIterator<Item = Hypervisor>,
        wasm: Option<Wasm>,
        state_dir: &Path,
    ) -> Self {
        let oci = oci.into_iter().map(|handler| {
            let root = handler.root(state_dir);
            (handler.name.clone(), External::Oci(OciHandler { root: Some(root), ..handler }))
        });
        let shims = shims.into_iter().map(|handler| (handler.name.clone(), External::Shim(handler)));
        let external = oci.chain(shims).map(|(name, handler)| (name, Arc::new(Program::new(handler))));
        let vms = vms.into_iter().map(|vm| (vm.handler.name.clone(), Arc::new(vm)));
        Self { default, external: external.collect(), vms: vms.collect(), wasm: wasm.map(Arc::new) }
    }

    /// Whether any handler is a shim.
    pub(crate) fn has_shims(&self) -> bool {
        self.external.values().any(|program| matches!(program.handler, External::Shim(_)))
    }

    /// Returns the handler of modules, which also runs the modules of pods with the default handler.
    pub(crate) fn wasm(&self) -> Option<&Arc<Wasm>> {
        self.wasm.as_ref()
    }

    /// Returns the names that a pod may request, the empty one first.
    pub(crate) fn names(&self) -> Vec<String> {
        let default = Some(self.default.clone()).filter(|name| !name.is_empty());
        std::iter::once(String::new())
            .chain(default)
            .chain(self.external.keys().cloned())
            .chain(self.vms.keys().cloned())
            .chain(self.wasm.iter().map(|wasm| wasm.handler.name.clone()))
            .collect()
    }

    /// Returns the handlers in the order of [`Self::names`]. Waits at most [`LIST_TIMEOUT`] for programs that were not
    /// run yet.
    pub(crate) async fn info(&self) -> Vec<HandlerInfo> {
        join_all(self.names().into_iter().map(|name| self.info_of(name))).await
    }

    async fn info_of(&self, name: String) -> HandlerInfo {
        if let Some(program) = self.external.get(&name) {
            return info_of_program(name, program).await;
        }
        let kind = match self.get(&name) {
            Ok(Handler::Wasm(wasm)) => HandlerKind::Wasm {
                binary: wasm.handler.binary.clone(),
                version: within_list_timeout(wasm, |wasm| async move { wasm.version().await.map_err(|e| e.message) })
                    .await,
            },
            Ok(Handler::Vm(vm)) => {
                let accelerator = match offload::in_place(|| vm.check()) {
                    Ok(Accelerator::Kvm) => Ok("kvm"),
                    Ok(Accelerator::Tcg) => Ok("emulation"),
                    Err(error) => Err(error.message),
                };
                let overhead = offload::in_place(|| vm.overhead());
                let kind = HandlerKind::Vm { hypervisor: vm.handler.hypervisor.clone(), accelerator, overhead };
                return HandlerInfo { name, kind, recursive_readonly_mounts: false, user_namespaces: false };
            }
            _ => HandlerKind::Native,
        };
        HandlerInfo { name, kind, recursive_readonly_mounts: true, user_namespaces: true }
    }

    /// Runs the programs of all handlers, so that later callers do not wait for them.
    pub(crate) async fn examine(&self) {
        join_all(self.external.values().map(|program| program.facts())).await;
    }

    /// Returns what the runtime or shim of a handler reports about itself; `None` for a handler without a program.
    ///
    /// # Errors
    /// `FailedPrecondition` if the runtime cannot run pods, with the remedy.
    pub(crate) async fn facts(&self, name: &str) -> Result<Option<RuntimeFacts>, Error> {
        let Some(program) = self.external.get(name) else { return Ok(None) };
        let unusable = |cause: String| Error::state(format!("runtime handler {name:?}: {cause}"));
        let facts = program.facts().await.map_err(unusable)?;
        match &facts.too_old {
            Some(cause) => Err(unusable(format!("{} is too old: {cause}", program.handler.configured().display()))),
            None => Ok(Some(facts)),
        }
    }

    /// Returns the handler with this name.
    ///
    /// # Errors
    /// `InvalidArgument` if no handler of this name is configured.
    pub(crate) fn get(&self, name: &str) -> Result<Handler<'_>, Error> {
        if name.is_empty() || name == self.default {
            return Ok(Handler::Native);
        }
        if let Some(program) = self.external.get(name) {
            return Ok(match &program.handler {
                External::Oci(handler) => Handler::Oci(handler),
                External::Shim(handler) => Handler::Shim(handler),
            });
        }
        if let Some(vm) = self.vms.get(name) {
            return Ok(Handler::Vm(vm));
        }
        if let Some(wasm) = self.wasm.as_ref().filter(|wasm| wasm.handler.name == name) {
            return Ok(Handler::Wasm(wasm));
        }
        let quote = |name: &String| match name.is_empty() {
            true => "the default one, without a name".to_owned(),
            false => format!("{name:?}"),
        };
        let configured: Vec<String> = self.names().iter().map(quote).collect();
        Err(Error::invalid(format!(
            "runtime handler {name:?} is not configured on this node; configured: {}; remove runtimeClassName from the \
             pod, name a RuntimeClass with one of these, or add [handlers.{name}] to the configuration",
            configured.join(", ")
        )))
    }
}

async fn info_of_program(name: String, program: &Arc<Program>) -> HandlerInfo {
    let facts = known_facts(program).await.and_then(|facts| match facts.too_old {
        Some(reason) => Err(reason),
        None => Ok(facts),
    });
    let features = facts.as_ref().ok().and_then(|facts| facts.features.clone()).unwrap_or_default();
    let binary = program.handler.configured().clone();
    HandlerInfo {
        name,
        recursive_readonly_mounts: features.recursive_readonly_mounts,
        user_namespaces: features.user_namespaces,
        kind: match program.handler {
            External::Oci(_) => HandlerKind::Oci { binary, facts },
            External::Shim(_) => HandlerKind::Shim { binary, facts },
        },
    }
}

/// Returns what is known of a program. If it was not run yet, it is, but only [`LIST_TIMEOUT`] of that are waited for.
async fn known_facts(program: &Arc<Program>) -> Result<RuntimeFacts, String> {
    if let Some(facts) = program.known_facts() {
        return facts;
    }
    within_list_timeout(program, |program| async move { program.facts().await }).await
}

/// Runs a program of a handler, but waits at most [`LIST_TIMEOUT`] for it.
async fn within_list_timeout<P, T, F>(program: &Arc<P>, run: impl FnOnce(Arc<P>) -> F) -> Result<T, String>
where
    T: Send + 'static,
    F: Future<Output = Result<T, String>> + Send + 'static,
{
    let running = tokio::spawn(run(Arc::clone(program)));
    match tokio::time::timeout(LIST_TIMEOUT, running).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(bug)) => Err(format!("a bug: {bug}")),
        Err(_) => Err("its program has not reported its version and features yet".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_handler_is_found_by_its_name_and_an_unknown_one_is_refused() {
        let crun = OciHandler { name: "crun".into(), ..OciHandler::default() };
        let runsc = ShimHandler { name: "runsc".into(), ..ShimHandler::default() };
        let handlers = Handlers::new("pinion".into(), [crun], [runsc], [], None, Path::new("/run/pinion"));
        assert!(matches!(handlers.get(""), Ok(Handler::Native)));
        assert!(matches!(handlers.get("pinion"), Ok(Handler::Native)));
        assert!(matches!(handlers.get("crun"), Ok(Handler::Oci(handler)) if handler.name == "crun"));
        assert!(matches!(handlers.get("runsc"), Ok(Handler::Shim(handler)) if handler.name == "runsc"));
        assert_eq!(handlers.names(), ["", "pinion", "crun", "runsc"]);
        let error = handlers.get("kata").err().map(|error| error.message).unwrap_or_default();
        assert!(
            error.contains("configured: the default one, without a name, \"pinion\", \"crun\", \"runsc\""),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_program_is_run_once_and_again_after_it_was_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let (binary, calls) = (directory.path().join("runtime"), directory.path().join("calls"));
        let install = |version: &str| {
            let script = format!("#!/bin/sh\necho >> {}\necho x version {version}\n", calls.display());
            let new = directory.path().join("new");
            fs::write(&new, script).expect("write");
            fs::set_permissions(&new, PermissionsExt::from_mode(0o755)).expect("chmod");
            fs::rename(&new, &binary).expect("rename");
        };
        let handlers = Handlers::new(
            String::new(),
            [OciHandler { name: "x".into(), binary: binary.clone(), ..Default::default() }],
            [],
            [],
            None,
            directory.path(),
        );
        let error = handlers.facts("x").await.expect_err("it is missing").message;
        assert!(error.contains("cannot be executed: No such file") && error.contains("handlers.x.binary"), "{error}");
        install("1.0");
        for _ in 0..3 {
            assert_eq!(handlers.facts("x").await.expect("facts").map(|facts| facts.version), Some("x 1.0".to_owned()));
        }
        assert_eq!(fs::read_to_string(&calls).expect("calls").lines().count(), 2, "--version and features");
        install("2.0.1");
        assert_eq!(handlers.facts("x").await.expect("facts").map(|facts| facts.version), Some("x 2.0.1".to_owned()));
        let info = handlers.info().await;
        assert_eq!((info[0].user_namespaces, info[1].user_namespaces), (true, false), "it reports no features");
        fs::set_permissions(&binary, PermissionsExt::from_mode(0o644)).expect("chmod");
        assert!(handlers.facts("x").await.is_err_and(|error| error.message.contains("not executable")));
        assert_eq!(handlers.facts("").await.expect("the default one"), None);
    }
}
