//! WebAssembly modules: the program that runs them, and their compiled code.
//!
//! Modules are hostile, so neither the daemon nor the monitor parses them. `pinion-wasm compile` compiles each once, in a
//! sandbox that it enters before it reads the module ([`compile`]), and the container maps the result ([`cache`]).

mod cache;
mod compile;
mod failures;
mod module_file;
mod program;
mod read_only;

use std::{
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use image::{Digest, Image};
use rustix::fd::OwnedFd;

use self::program::Program;
use super::Node;
use crate::{
    Error, ErrorKind, WasmHandler,
    error::failed,
    operation::{CompilationLimit, PodCompilations, SingleFlight},
};

pub(crate) use self::module_file::ModuleFile;

/// Modules whose digests are kept.
const KNOWN_MAX: usize = 1024;

/// What a container needs to run a module.
pub(crate) struct Interpreter {
    /// The program, on a read-only mount.
    pub(crate) program: OwnedFd,
    /// Compiled code of the module, on a read-only mount; `None`: it is compiled in the container.
    pub(crate) code: Option<OwnedFd>,
}

/// The runtime of modules.
pub(crate) struct Wasm {
    pub(crate) handler: WasmHandler,
    /// Directory of compiled code of all versions of the program.
    directory: PathBuf,
    program: Mutex<Option<Arc<Program>>>,
    /// Digests of modules, by image and path; `None`: the file is not a module. The files of an image do not change.
    known: Mutex<HashMap<(String, PathBuf), Option<Digest>>>,
    compilations: SingleFlight<Digest, ()>,
    limit: CompilationLimit,
}

impl Wasm {
    pub(crate) fn new(handler: WasmHandler, data_dir: &Path) -> Self {
        Self {
            // A directory of its own: what it does not know there is removed.
            directory: handler
                .cache
                .as_deref()
                .map_or_else(|| data_dir.join("wasm"), |cache| cache.join("pinion-wasm")),
            handler,
            program: Mutex::default(),
            known: Mutex::default(),
            compilations: SingleFlight::default(),
            limit: CompilationLimit::default(),
        }
    }

    /// Returns what runs the module at this path of an image, whose root is mounted; `None` if the file is not a module.
    /// `compiling` is called if the module has to be compiled, which takes a permit of the pod.
    ///
    /// # Errors
    /// `InvalidArgument`: the file cannot be opened, or it is a module that cannot be compiled. `FailedPrecondition`: the
    /// program is missing or does not work.
    pub(crate) async fn interpreter(
        self: &Arc<Self>,
        (node, image): (&Arc<Node>, &Image),
        (root, path): (&OwnedFd, PathBuf),
        (pod, compiling): (&PodCompilations, impl FnOnce()),
    ) -> Result<Option<Interpreter>, Error> {
        let program = self.program().await?;
        let key = (image.id.clone(), path.clone());
        let known = self.known().get(&key).cloned();
        if let Some(digest) = &known {
            let Some(digest) = digest else { return Ok(None) };
            // Evicted code is compiled again.
            if let Some(code) = offload::in_place(|| program.cache.find(digest))? {
                return Ok(Some(Interpreter { program: program.duplicate()?, code: Some(code) }));
            }
        }
        let root = root.try_clone().map_err(failed("duplicate the root"))?;
        let (owned, disk) = (Arc::clone(self), node.images.disk().clone());
        let read = disk.run_long(move || match ModuleFile::open(&root, &path, owned.handler.size_max)? {
            None => Ok(None),
            Some(module) => module.digest().map(|digest| Some((module, digest))),
        });
        let read: Option<(ModuleFile, Digest)> = read.await?;
        self.remember(key, read.as_ref().map(|(_, digest)| digest.clone()));
        let Some((module, digest)) = read else { return Ok(None) };
        let (marked, owner) = (Arc::clone(&program), (digest.clone(), image.id.clone()));
        let exists = disk.run(move || marked.cache.mark(&owner.0, &owner.1)).await?;
        if !exists {
            if let Some(error) = program.failures.find(&digest, Instant::now()) {
                return Err(error);
            }
            compiling();
            // Before the flight, which other pods join that have the same module: they do not wait for this pod's others.
            let _permit = pod.acquire().await?;
            let (wasm, program, name) = (Arc::clone(self), Arc::clone(&program), digest.clone());
            let work = || async move { wasm.compile(&program, module.into_file(), &name).await };
            self.compilations.run(digest.clone(), work).await?;
        }
        let code = offload::in_place(|| program.cache.find(&digest))?;
        let code = code.ok_or_else(|| Error::internal(format!("compiled code {digest} disappeared; try again")))?;
        Ok(Some(Interpreter { program: program.duplicate()?, code: Some(code) }))
    }

    async fn compile(&self, program: &Program, module: File, digest: &Digest) -> Result<(), Error> {
        // It may have been compiled, or have failed, while this waited for the permit of its pod.
        if let Some(error) = program.failures.find(digest, Instant::now()) {
            return Err(error);
        }
        if offload::in_place(|| program.cache.find(digest))?.is_some() {
            return Ok(());
        }
        let permit = self.limit.acquire().await?;
        let output = offload::in_place(|| program.cache.new_file(digest))?;
        let compiled = compile::compile(&self.handler, (module, output.writer()?), permit).await;
        if let Err(error) = &compiled
            && error.kind == ErrorKind::InvalidArgument
        {
            program.failures.keep(digest.clone(), error.clone(), Instant::now());
        }
        compiled?;
        let size_max = self.handler.cache_size_max;
        let cache = program.cache.clone();
        let published = offload::blocking(move || {
            output.publish()?;
            cache.evict(size_max)
        });
        published.await.map_err(failed("publish compiled code"))?
    }

    /// Returns what runs a module that is not in an image, and is compiled in the container each time.
    ///
    /// # Errors
    /// `FailedPrecondition`: the program is missing or does not work.
    pub(crate) async fn interpreter_without_code(&self) -> Result<Interpreter, Error> {
        Ok(Interpreter { program: self.program().await?.duplicate()?, code: None })
    }

    /// Checks that the program works. Returns the version of its engine.
    ///
    /// # Errors
    /// `FailedPrecondition`: it is missing or does not work, or the directory of compiled code cannot be used.
    pub(crate) async fn version(&self) -> Result<String, Error> {
        self.program().await.map(|program| program.version.clone())
    }

    /// Returns the program. It is opened again if its file was replaced.
    async fn program(&self) -> Result<Arc<Program>, Error> {
        let current = self.program.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let identity = offload::in_place(|| program::identity(&self.handler.binary))?;
        if let Some(program) = current.filter(|program| program.identity == identity) {
            return Ok(program);
        }
        let program = Arc::new(Program::open(&self.handler.binary, identity, &self.directory).await?);
        *self.program.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&program));
        Ok(program)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(String, PathBuf), Option<Digest>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, key: (String, PathBuf), digest: Option<Digest>) {
        let mut known = self.known();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(key, digest);
    }

    /// Removes the code of other versions of the program, and of modules of which no image exists anymore. Blocks.
    pub(crate) fn remove_unused(&self, images: &image::Store) -> Result<(), Error> {
        // A compilation has files that do not belong to anything yet.
        let Some(_permits) = self.limit.try_acquire_all() else { return Ok(()) };
        let Some(program) = self.program.lock().unwrap_or_else(PoisonError::into_inner).clone() else { return Ok(()) };
        cache::remove_other_versions(&self.directory, &program.version)?;
        program.cache.remove_unowned(|image| images.find(image).is_ok_and(|found| found.is_some()))
    }
}
