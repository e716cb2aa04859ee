//! Containers whose program is a WebAssembly module: which ones, and how they differ.
//!
//! The init process executes `pinion-wasm` by a descriptor in place of the program, in the same namespaces, cgroup, seccomp
//! filter and capabilities. Everything else is as for a program.

use std::{
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use image::{ANNOTATION_HANDLER, ANNOTATION_VARIANT, Image, MODULE_PATH};
use rustix::fd::OwnedFd;

use super::spec;
use crate::{
    Error,
    node::{Handler, Interpreter, Wasm},
    parts::Parts,
    store::{Container, Sandbox},
};

/// Annotation of a pod or container: the address on which a component of `wasi:http/proxy` is served.
const HTTP_ADDRESS: &str = "io.pinion.wasm.http-address";
/// Longest address: an IPv6 address with a port.
const ADDRESS_MAX: usize = 64;

/// Whether the program of a container is a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// No.
    Program,
    /// If its file is one.
    ByContent,
    /// Yes.
    Module,
}

/// What runs the module of a container, with its first arguments.
pub(super) struct ModuleInterpreter {
    pub(super) files: Interpreter,
    pub(super) arguments: Vec<String>,
}

/// Returns what runs the container if its program is a module. Its root is mounted.
///
/// # Errors
/// `InvalidArgument`: it must be a module and is none, or the module cannot be compiled. `FailedPrecondition`: no handler
/// for modules is configured.
pub(super) async fn interpreter(
    parts: &Arc<Parts>,
    sandbox: &Sandbox,
    container: &Container,
    image: &Image,
    root: &OwnedFd,
) -> Result<Option<ModuleInterpreter>, Error> {
    let handlers = &parts.node.handlers;
    let handler = handlers.get(&sandbox.config().runtime_handler)?;
    let (wasm, always) = match (handler, handlers.wasm()) {
        (Handler::Oci(_) | Handler::Shim(_) | Handler::Vm(_), _) => return Ok(None),
        (Handler::Native, None) if image.config.is_wasm() => return Err(not_configured(image)),
        (Handler::Native, None) => return Ok(None),
        (Handler::Native, Some(wasm)) => (wasm, false),
        (Handler::Wasm(wasm), _) => (wasm, true),
    };
    let kind = match (kind(wasm, sandbox, container, image), always) {
        (Kind::Program, true) => Kind::ByContent,
        (kind, _) => kind,
    };
    if kind == Kind::Program {
        return Ok(None);
    }
    let Some(path) = program_path(container, image) else { return Ok(None) };
    if is_in_a_volume(container, &path) {
        return match kind {
            Kind::Module => {
                let files = wasm.interpreter_without_code().await?;
                Ok(Some(ModuleInterpreter { files, arguments: arguments(sandbox, container)? }))
            }
            // Files of volumes are not read here.
            _ => Ok(None),
        };
    }
    let compiling = (&sandbox.compilations, || container.stage("compile the module"));
    let mut found = wasm.interpreter((&parts.node, image), (root, path.clone()), compiling).await?;
    if found.is_none() && image.config.is_wasm() {
        // The entrypoint of an artifact may be the name that its module had where it was built.
        found = wasm.interpreter((&parts.node, image), (root, MODULE_PATH.into()), compiling).await?;
    }
    match (found, kind) {
        (Some(files), _) => Ok(Some(ModuleInterpreter { files, arguments: arguments(sandbox, container)? })),
        (None, Kind::Module) => Err(Error::invalid(format!(
            "{} of image {} is not a WebAssembly module, but its platform or an annotation says so",
            path.display(),
            container.config().user_specified_image
        ))),
        (None, _) => Ok(None),
    }
}

/// Whether a volume hides the file that the image has at this path.
fn is_in_a_volume(container: &Container, path: &Path) -> bool {
    let path = normal(path);
    container.config().volumes.iter().any(|volume| path.starts_with(normal(Path::new(&volume.container_path))))
}

/// Returns an absolute path without `.` and `..`, as if it had no symbolic links.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::from("/"), |mut normal, component| {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => drop(normal.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
        normal
    })
}

fn not_configured(image: &Image) -> Error {
    Error::state(format!(
        "image {} is a WebAssembly module, and no handler for them is configured; install pinion-wasm and add \
         [handlers.wasm] with kind = \"wasm\" to the configuration",
        image.repo_tags.first().unwrap_or(&image.id)
    ))
}

/// Decides by the platform of the image and the annotations, of which the container's have precedence over the pod's, and
/// those over the image's.
fn kind(wasm: &Wasm, sandbox: &Sandbox, container: &Container, image: &Image) -> Kind {
    let annotation = |name: &str| {
        let requested = [&container.config().annotations, &sandbox.config().annotations];
        let requested = requested.into_iter().filter(|_| wasm.handler.allows(name)).find_map(|all| all.get(name));
        requested.or_else(|| image.annotations.get(name)).map(String::as_str)
    };
    match (annotation(ANNOTATION_HANDLER), annotation(ANNOTATION_VARIANT)) {
        (Some("wasm"), _) | (_, Some("compat")) => Kind::Module,
        _ if image.config.is_wasm() => Kind::Module,
        (_, Some("compat-smart")) => Kind::ByContent,
        _ => Kind::Program,
    }
}

/// Returns the path of the program in the image.
fn program_path(container: &Container, image: &Image) -> Option<PathBuf> {
    let config = container.config();
    let arguments = spec::arguments(config, &image.config);
    let name = arguments.first()?;
    let directory = config.working_dir.as_deref().filter(|directory| !directory.is_empty());
    let directory = spec::absolute(directory.unwrap_or(&image.config.working_dir));
    Some(Path::new(&directory).join(name))
}

fn arguments(sandbox: &Sandbox, container: &Container) -> Result<Vec<String>, Error> {
    let mut arguments = vec!["pinion-wasm".to_owned(), "run".to_owned()];
    let annotations = [&container.config().annotations, &sandbox.config().annotations];
    if let Some(address) = annotations.into_iter().find_map(|all| all.get(HTTP_ADDRESS)) {
        if address.len() > ADDRESS_MAX || address.parse::<std::net::SocketAddr>().is_err() {
            return Err(Error::invalid(format!("annotation {HTTP_ADDRESS}: not an IP address with a port")));
        }
        arguments.push(format!("--http-address={address}"));
    }
    Ok(arguments)
}

/// Hides `/proc` and `/sys` from a module, unless its container is privileged. A module may open every file of its
/// container, and through `/proc/self/mem` it could write the memory of the process outside of its own.
pub(super) fn hide_process_files(container: &Container, spec: &mut oci::Spec) {
    if let (false, Some(linux)) = (container.config().security.privileged, &mut spec.linux) {
        linux.hide_process_files();
    }
}
