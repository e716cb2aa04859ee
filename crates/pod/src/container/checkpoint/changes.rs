//! The changes of a container to its root, from its writable layer: `rootfs-diff.tar` and `deleted.files`, or a layer in the
//! format of images, from which the writable layer can be made again.
//!
//! The container keeps running and changes the layer while it is read: a directory may be a symbolic link by the time
//! it is opened. So every path is resolved by openat2(2) beneath the layer, without following symbolic links and
//! without crossing mounts, and every file is examined and read through one descriptor. A file has the length in the
//! archive that it had when it was opened.

use std::{
    collections::HashMap,
    fs::{self, File, Metadata},
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::{FileTypeExt, MetadataExt, OpenOptionsExt, fchown},
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fd::AsFd,
    fs::{Dir, Mode, OFlags, ResolveFlags, major, minor, open, openat2, readlinkat},
    io::Errno,
};

use super::attempt::{Attempt, Guarded};
use crate::{Error, error::failed, parts::Parts, store::Container};

/// Most files of a writable layer.
const FILES_MAX: usize = 4 << 20;
/// Longest path in a writable layer, bytes: the limit of one system call, which allows about 2000 nested directories.
const PATH_MAX: usize = 4095;
/// Unit of [`MetadataExt::blocks`], bytes.
const BLOCK: u64 = 512;

pub(super) fn write(parts: &Parts, container: &Container, attempt: &Arc<Attempt>) -> Result<(), Error> {
    let (directory, upper) = (&attempt.directory, parts.node.images.upper(container.id().as_str()));
    let (diff, deleted) = (directory.join("rootfs-diff.tar"), directory.join("deleted.files"));
    let file = File::create(&diff).map_err(failed(format_args!("create {}", diff.display())))?;
    let file = Guarded { inner: file, attempt: Arc::clone(attempt) };
    let deleted_names = Packer::new(BufWriter::new(file), directory.join("sparse-file")).pack(&upper);
    let deleted_names = deleted_names.map_err(failed("pack the changes of its root"))?;
    let text = serde_json::to_vec(&deleted_names).map_err(failed("write the names of deleted files"))?;
    fs::write(&deleted, text).map_err(failed(format_args!("write {}", deleted.display())))
}

/// Writes a layer in the format of images with the changes of a writable layer. `scratch` is a path for temporary files, which
/// must not exist. Sockets are left out.
///
/// # Errors
/// Those of the disk; a file has the name of a marker.
pub(crate) fn write_layer(upper: &Path, target: impl Write, scratch: PathBuf) -> io::Result<()> {
    let packer = Packer { markers: true, ..Packer::new(BufWriter::new(target), scratch) };
    packer.pack(upper).map(drop)
}

/// Beginning of the names of markers in layers of images.
const MARKER: &[u8] = b".wh.";
/// Marks a directory that hides all of lower layers.
const OPAQUE: &str = ".wh..wh..opq";
/// Attribute of such a directory.
const OPAQUE_ATTRIBUTE: &str = "trusted.overlay.opaque";
/// Attributes that layers have. Others are of the node, or of overlayfs.
const ATTRIBUTES: [&str; 3] = ["user.", "security.capability", "system.posix_acl_"];

/// Writes one archive of a writable layer.
struct Packer<W: Write> {
    tar: tar::Builder<W>,
    /// Whether deleted files and opaque directories are marked in the archive, and files have their extended attributes.
    markers: bool,
    /// Path that a sparse file is copied to, so that it keeps its holes and its length.
    scratch: PathBuf,
    /// First names of files with several hard links, by device and inode.
    linked: HashMap<(u64, u64), PathBuf>,
    deleted: Vec<String>,
    /// Directories still to be read, relative to the layer.
    pending: Vec<PathBuf>,
}

impl<W: Write> Packer<W> {
    fn new(target: W, scratch: PathBuf) -> Self {
        let (linked, deleted) = (HashMap::new(), Vec::new());
        let pending = vec![PathBuf::from(".")];
        Self { tar: tar::Builder::new(target), markers: false, scratch, linked, deleted, pending }
    }

    /// Writes all files, and returns the names of deleted ones (whiteouts: character devices with device number 0).
    fn pack(mut self, upper: &Path) -> io::Result<Vec<String>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = open(upper, flags, Mode::empty())?;
        if self.markers {
            self.append_directory(&File::from(root.try_clone()?), Path::new("."))?;
        }
        let mut count = 0;
        while let Some(directory) = self.pending.pop() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            let Some(at) = open_beneath(&root, &directory, flags)? else { continue };
            for entry in Dir::read_from(&at)? {
                let entry = entry?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                count += 1;
                if count > FILES_MAX {
                    return Err(io::Error::other(format!("more than {FILES_MAX} files")));
                }
                let name = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
                let path = directory.strip_prefix(".").unwrap_or(&directory).join(name);
                if path.as_os_str().len() > PATH_MAX {
                    return Err(io::Error::other(format!("a path is longer than {PATH_MAX} bytes")));
                }
                if let Some(file) = open_beneath(&at, name, OFlags::PATH | OFlags::NOFOLLOW)? {
                    self.append(file, path)?;
                }
            }
        }
        self.tar.into_inner()?.flush()?;
        Ok(self.deleted)
    }

    /// Adds one file. `file` was opened with `O_PATH`, because opening a device or a FIFO could have side effects.
    fn append(&mut self, file: OwnedFd, path: PathBuf) -> io::Result<()> {
        let file = File::from(file);
        let metadata = file.metadata()?;
        let kind = metadata.file_type();
        let mut header = header(&metadata);
        if self.markers && path.file_name().is_some_and(|name| name.as_bytes().starts_with(MARKER)) {
            return Err(io::Error::other(format!("{} has the name of a marker", path.display())));
        }
        if kind.is_char_device() && metadata.rdev() == 0 {
            self.append_deleted(&path)?;
        } else if kind.is_dir() {
            self.append_directory(&file, &path)?;
            self.pending.push(path);
        } else if kind.is_symlink() {
            let target = readlinkat(&file, "", Vec::new())?;
            self.tar.append_link(&mut header, &path, std::ffi::OsStr::from_bytes(target.to_bytes()))?;
        } else if kind.is_file() {
            let inode = (metadata.nlink() > 1).then_some((metadata.dev(), metadata.ino()));
            if let Some(first) = inode.and_then(|inode| self.linked.get(&inode)) {
                header.set_entry_type(tar::EntryType::Link);
                return self.tar.append_link(&mut header, &path, first);
            }
            self.linked.extend(inode.map(|inode| (inode, path.clone())));
            self.append_file(&file, &path, header)?;
        } else if kind.is_fifo() || kind.is_char_device() || kind.is_block_device() {
            header.set_device_major(major(metadata.rdev()))?;
            header.set_device_minor(minor(metadata.rdev()))?;
            self.tar.append_data(&mut header, &path, io::empty())?;
        }
        // A socket has no contents that an archive could hold.
        Ok(())
    }

    /// Records a deleted file.
    fn append_deleted(&mut self, path: &Path) -> io::Result<()> {
        match (self.markers, path.file_name()) {
            (true, Some(name)) => {
                let marker = [MARKER, name.as_bytes()].concat();
                let path = path.with_file_name(std::ffi::OsStr::from_bytes(&marker));
                self.tar.append_data(&mut empty_header(), path, io::empty())
            }
            _ => {
                self.deleted.push(path.to_string_lossy().into_owned());
                Ok(())
            }
        }
    }

    fn append_directory(&mut self, directory: &File, path: &Path) -> io::Result<()> {
        self.append_attributes(directory)?;
        self.tar.append_data(&mut header(&directory.metadata()?), path, io::empty())?;
        if self.markers && attribute(directory, OPAQUE_ATTRIBUTE)?.is_some() {
            self.tar.append_data(&mut empty_header(), path.join(OPAQUE), io::empty())?;
        }
        Ok(())
    }

    /// Adds the extended attributes of a file to the entry that follows.
    fn append_attributes(&mut self, file: &File) -> io::Result<()> {
        if !self.markers {
            return Ok(());
        }
        let mut found = Vec::new();
        for name in attribute_names(file)? {
            if ATTRIBUTES.iter().any(|prefix| name.starts_with(prefix))
                && let Some(value) = attribute(file, &name)?
            {
                found.push((format!("SCHILY.xattr.{name}"), value));
            }
        }
        self.tar.append_pax_extensions(found.iter().map(|(name, value)| (name.as_str(), &value[..])))
    }

    fn append_file(&mut self, path_file: &File, path: &Path, mut header: tar::Header) -> io::Result<()> {
        // Opens the same file for reading.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(open(format!("/proc/self/fd/{}", path_file.as_raw_fd()), flags, Mode::empty())?);
        let metadata = file.metadata()?;
        self.append_attributes(&file)?;
        if metadata.blocks().saturating_mul(BLOCK) < metadata.len() {
            let mut copy = sparse_copy(&file, &metadata, &self.scratch)?;
            return self.tar.append_file(path, &mut copy);
        }
        header.set_size(metadata.len());
        self.tar.append_data(&mut header, path, file.chain(io::repeat(0)).take(metadata.len()))
    }
}

/// Most bytes of the names of the extended attributes of a file, and of the value of one: the limits of the kernel.
const ATTRIBUTE_MAX: usize = 64 << 10;

/// Returns the path of an open file through which its attributes are read: `O_PATH` descriptors have no others.
fn path_of(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Returns the names of the extended attributes of a file, as far as they are UTF-8.
fn attribute_names(file: &File) -> io::Result<Vec<String>> {
    let mut buffer = vec![0_u8; ATTRIBUTE_MAX];
    let length = match rustix::fs::listxattr(path_of(file), &mut buffer[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(errno) => return Err(errno.into()),
    };
    let names = buffer[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.filter_map(|name| String::from_utf8(name.to_vec()).ok()).collect())
}

/// Returns the value of an extended attribute of a file, if it has it.
fn attribute(file: &File, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut buffer = vec![0_u8; ATTRIBUTE_MAX];
    match rustix::fs::getxattr(path_of(file), name, &mut buffer[..]) {
        Ok(length) => {
            buffer.truncate(length);
            Ok(Some(buffer))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns the header of a marker.
fn empty_header() -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(0);
    header.set_mode(0o600);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn header(metadata: &Metadata) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_metadata_in_mode(metadata, tar::HeaderMode::Complete);
    header.set_size(0);
    header
}

/// Opens a path below a directory of the layer; `None` if it was removed or replaced in the meantime.
fn open_beneath(at: impl AsFd, path: &Path, flags: OFlags) -> io::Result<Option<OwnedFd>> {
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    loop {
        match openat2(&at, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Ok(file) => return Ok(Some(file)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Copies a file, so that it does not change any longer, with the same holes, owner, mode and time. The copy has no name: the path
/// must not exist, and does not exist afterwards.
fn sparse_copy(file: &File, metadata: &Metadata, target: &Path) -> io::Result<File> {
    let mut from = file;
    let mut copy = File::options().read(true).write(true).create_new(true).mode(0o600).open(target)?;
    fs::remove_file(target)?;
    let mut at = 0;
    while at < metadata.len() {
        let Some((data, end)) = next_data(file, at)? else { break };
        let hole = end.min(metadata.len());
        from.seek(SeekFrom::Start(data))?;
        copy.seek(SeekFrom::Start(data))?;
        io::copy(&mut from.take(hole.saturating_sub(data)), &mut copy)?;
        at = hole.max(at + 1);
    }
    copy.set_len(metadata.len())?;
    fchown(&copy, Some(metadata.uid()), Some(metadata.gid()))?;
    copy.set_permissions(metadata.permissions())?;
    copy.set_modified(metadata.modified()?)?;
    copy.rewind()?;
    Ok(copy)
}

/// Returns the start and the end of the next data in a file; `None` if no data follows, also if the file was truncated
/// in between.
fn next_data(file: &File, at: u64) -> io::Result<Option<(u64, u64)>> {
    use rustix::fs::{SeekFrom, seek};
    let range = seek(file, SeekFrom::Data(at)).and_then(|data| Ok((data, seek(file, SeekFrom::Hole(data))?)));
    match range {
        Ok(range) => Ok(Some(range)),
        Err(Errno::NXIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests;
