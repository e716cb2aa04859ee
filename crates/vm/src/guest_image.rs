//! The image that guests boot: a kernel and an initramfs.
//!
//! ```text
//! kernel      the distribution's: unpacked to an ELF file that boots by PVH if possible, else the file as it is
//! initramfs   cpio archive "newc", not compressed
//! agent       the agent once more: on the node, it starts virtual machine monitors with a template
//! image.json  [`Description`]
//! ```
//!
//! The initramfs contains:
//!
//! ```text
//! /init                     the agent
//! /dev/console              c 5 1
//! /proc /sys /run /tmp      empty directories
//! /modules/NAME.ko          modules, not compressed
//! /modules/boot             modules that the agent loads at boot: one path per line, in load order
//! /modules/demand           modules that the kernel may request from the agent
//! ```
//! A line of `/modules/demand` is `NAME: PATH PATH…`, for example
//! `nf_tables: /modules/nfnetlink.ko /modules/libcrc32c.ko /modules/nf_tables.ko`: the dependencies in load order,
//! and last the module itself. NAME is that of the module or one of its aliases, and has `_` where these may have `-`. Paths are absolute and contain no white
//! space. A module may be loaded already (`EEXIST`). A dependency that only makes an algorithm of the kernel's crypto
//! API available (`modules.softdep`) may fail with `ENODEV` where the processor lacks the instructions for it: only
//! the failure of the module itself is an error. Modules that are built into the kernel are in neither file: a name
//! without a line is either built in or missing.

mod cpio;
mod decompress;
mod elf;
mod error;
mod initramfs;
mod input;
mod kernel;
mod modules;
mod sources;
mod staging;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use self::{
    error::{Error, ErrorKind},
    kernel::KernelFormat,
    sources::Sources,
};
use self::{
    kernel::Kernel,
    modules::Modules,
    staging::{AGENT, DESCRIPTION, INITRAMFS, KERNEL, Staging},
};

/// Maximum size of a description, in bytes.
const DESCRIPTION_MAX: u64 = 1 << 20;

/// Content of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Release of the kernel, as `uname -r` prints it.
    pub release: String,
    /// Format of the kernel.
    pub format: KernelFormat,
    /// Size of the kernel, in bytes.
    pub kernel_size: u64,
    /// Size of the initramfs, in bytes.
    pub initramfs_size: u64,
    /// Size of the agent, in bytes; 0: the image was made by a version that did not add it.
    #[serde(default)]
    pub agent_size: u64,
    /// File names of all modules of the initramfs, in load order.
    pub modules: Vec<String>,
    /// Names of optional modules that the kernel has neither as a module nor built in.
    pub missing_optional: Vec<String>,
    /// SHA-256 of the kernel followed by the initramfs, in hexadecimal.
    pub id: String,
}

/// An image whose files exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Directory of its files.
    pub directory: PathBuf,
    /// Its content.
    pub description: Description,
}

impl Image {
    /// Returns the path of the kernel.
    pub fn kernel(&self) -> PathBuf {
        self.directory.join(KERNEL)
    }

    /// Returns the path of the initramfs.
    pub fn initramfs(&self) -> PathBuf {
        self.directory.join(INITRAMFS)
    }

    /// Returns the path of the agent, if the image has it.
    pub fn agent(&self) -> Option<PathBuf> {
        (self.description.agent_size > 0).then(|| self.directory.join(AGENT))
    }
}

/// Builds an image in the directory `target`, which is replaced if it exists: readers find the old files or the new
/// ones. The same sources make the same image.
///
/// A build that is killed leaves `TARGET.new`, which the next one removes. Needs memory for the unpacked kernel
/// and the window of its compression (80 to 140 MB).
///
/// # Errors
/// `Busy` if another build writes to the same parent directory; `Invalid` if a source does not have the expected
/// format, or if `target` contains files that are not of an image; `NotFound` if the kernel lacks a required module.
pub fn build(sources: &Sources, target: &Path) -> Result<Description, Error> {
    let release = sources.modules.file_name().and_then(|release| release.to_str());
    let release = release.ok_or_else(|| Error::invalid("find release of", &sources.modules, "not a name in UTF-8"))?;
    let staging = Staging::create(target)?;
    let modules = Modules::select(&sources.modules)?;
    let agent = initramfs::read_agent(&sources.agent)?;
    let mut hasher = Sha256::new();
    let (format, kernel_size) = write_kernel(&sources.kernel, &staging, &mut hasher)?;
    let mut output = staging.file(INITRAMFS, &mut hasher)?;
    initramfs::write(&mut output, &staging.path(INITRAMFS), &agent, &modules)?;
    let initramfs_size = output.finish()?;
    // It is in the initramfs, whose hash is in the id.
    let mut discarded = Sha256::new();
    let mut output = staging.program(AGENT, &mut discarded)?;
    output.write_all(&agent).map_err(Error::io("write", &staging.path(AGENT)))?;
    let agent_size = output.finish()?;
    let description = Description {
        release: release.to_owned(),
        format,
        kernel_size,
        initramfs_size,
        agent_size,
        modules: modules.files.into_iter().map(|(name, _)| name).collect(),
        missing_optional: modules.missing_optional,
        id: hexadecimal(&hasher.finalize()),
    };
    write_description(&description, &staging)?;
    staging.publish()?;
    Ok(description)
}

/// Opens an image that [`build`] made.
///
/// # Errors
/// `NotFound` if the image or one of its files does not exist; `Invalid` if a file does not have the size that the
/// image's description records, or if the description is malformed.
pub fn open(directory: &Path) -> Result<Image, Error> {
    let text = input::read(&directory.join(DESCRIPTION), DESCRIPTION_MAX)?;
    let description: Description =
        serde_json::from_slice(&text).map_err(|error| Error::invalid("parse", &directory.join(DESCRIPTION), error))?;
    let image = Image { directory: directory.to_owned(), description };
    let Description { kernel_size, initramfs_size, agent_size, .. } = image.description;
    let sizes = [(image.kernel(), kernel_size), (image.initramfs(), initramfs_size)];
    for (path, recorded) in sizes.into_iter().chain(image.agent().map(|path| (path, agent_size))) {
        let metadata = fs::metadata(&path).map_err(Error::io("open image file", &path))?;
        if !metadata.is_file() || metadata.len() != recorded {
            let cause = format!("has {} bytes, but {DESCRIPTION} records {recorded}", metadata.len());
            return Err(Error::invalid("open image file", &path, cause).with_remedy("build the image again"));
        }
    }
    Ok(image)
}

fn write_kernel(source: &Path, staging: &Staging, hasher: &mut Sha256) -> Result<(KernelFormat, u64), Error> {
    let kernel = Kernel::read(source)?;
    let mut output = staging.file(KERNEL, hasher)?;
    output.write_all(&kernel.content).map_err(Error::io("write", &staging.path(KERNEL)))?;
    Ok((kernel.format, output.finish()?))
}

fn write_description(description: &Description, staging: &Staging) -> Result<(), Error> {
    let path = staging.path(DESCRIPTION);
    let text = serde_json::to_vec_pretty(description).map_err(Error::io("serialize", &path))?;
    let mut discarded = Sha256::new();
    let mut output = staging.file(DESCRIPTION, &mut discarded)?;
    output.write_all(&text).map_err(Error::io("write", &path))?;
    output.finish().map(drop)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
