//! Loads compiled code: the only module with `unsafe`.
//!
//! A process that can change compiled code controls the process that loads it. So code is loaded only
//! - from a descriptor that the engine passes: a file in its cache, which only it can write, opened on a read-only mount,
//!   that is the output of `pinion-wasm compile` of the same version for a module whose digest names the file;
//! - or directly after it was compiled, from memory.
//!
//! What a hostile process in the container could gain by passing a descriptor of its own is what it has already: to run
//! code of its choice in the container.

use std::{
    fs::File,
    os::fd::{FromRawFd, OwnedFd, RawFd},
    ptr::NonNull,
};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect};
use wasmtime::{
    CustomCodeMemory, Engine, Error, Module, Precompiled, Result, bail, component::Component, error::Context,
};

use crate::host::Loaded;

/// Smallest page of the machines that are supported.
const PAGE: usize = 4096;

/// Makes code executable. Used instead of wasmtime's own, which refuses memory that was mapped by its caller.
pub(crate) struct Protection;

impl CustomCodeMemory for Protection {
    fn required_alignment(&self) -> usize {
        PAGE
    }

    fn publish_executable(&self, text: *const u8, length: usize) -> Result<()> {
        protect(text, length, MprotectFlags::READ | MprotectFlags::EXEC)
    }

    fn unpublish_executable(&self, text: *const u8, length: usize) -> Result<()> {
        protect(text, length, MprotectFlags::READ | MprotectFlags::WRITE)
    }
}

fn protect(text: *const u8, length: usize, protection: MprotectFlags) -> Result<()> {
    // SAFETY: wasmtime owns this region, which consists of whole pages, and calls this before any code of it runs and
    // after the last code of it has run; nothing else is in these pages.
    unsafe { mprotect(text.cast_mut().cast(), length, protection) }.context("change the protection of compiled code")
}

/// Loads compiled code from this descriptor of the process.
///
/// # Errors
/// The descriptor is not open, or not compiled code of this engine.
pub(crate) fn load(engine: &Engine, descriptor: RawFd) -> Result<Loaded> {
    // Only the three standard descriptors have another owner.
    if descriptor < 3 || !is_open(descriptor) {
        bail!("descriptor {descriptor} is not open");
    }
    // SAFETY: it is open, and nothing in this process uses it but this function, which is called once.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
    let memory = map(&file).context("map the compiled code")?;
    // SAFETY: the mapping is never removed, and the file does not change: see the documentation of the module.
    match Engine::detect_precompiled(unsafe { memory.as_ref() }) {
        // wasmtime maps a module itself, so that its initial memory is shared, too.
        // SAFETY: see the documentation of the module.
        Some(Precompiled::Module) => unsafe { Module::deserialize_open_file(engine, file) }.map(Loaded::Module),
        // SAFETY: see the documentation of the module. The mapping is never removed.
        Some(Precompiled::Component) => unsafe { Component::deserialize_raw(engine, memory) }.map(Loaded::Component),
        None => bail!("descriptor {descriptor} is not compiled code"),
    }
}

fn is_open(descriptor: RawFd) -> bool {
    // SAFETY: the borrow is used for one call, which fails if the descriptor is not open.
    let borrowed = unsafe { rustix::fd::BorrowedFd::borrow_raw(descriptor) };
    rustix::io::fcntl_getfd(borrowed).is_ok()
}

/// Maps a file, privately, for the rest of the life of the process.
fn map(file: &File) -> Result<NonNull<[u8]>> {
    let length = usize::try_from(file.metadata()?.len())?;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let start = unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::PRIVATE, file, 0) }?;
    let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| Error::msg("mapped at address 0"))?;
    Ok(NonNull::slice_from_raw_parts(start, length))
}
