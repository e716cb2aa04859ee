//! Options common to checkpoint and restore.

use std::{
    fs::File,
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use rustix::fd::AsRawFd;

use super::request::Options;
use crate::{
    failure::Failure,
    flags::{Flag, Flags, switch, value},
    launch::absolute,
};

pub(crate) const FLAGS: [Flag; 10] = [
    value(&["image-path"]),
    value(&["work-path"]),
    switch(&["tcp-established"]),
    switch(&["ext-unix-sk"]),
    switch(&["shell-job"]),
    switch(&["lazy-pages"]),
    switch(&["file-locks"]),
    value(&["manage-cgroups-mode"]),
    value(&["empty-ns"]),
    switch(&["auto-dedup"]),
];

/// A configuration file whose options CRIU applies over those of the request, if the file exists. runc uses the same.
const CONFIGURATION: &str = "/etc/criu/runc.conf";
/// A container's annotation that names another configuration file; an empty value means none.
const CONFIGURATION_ANNOTATION: &str = "org.criu.config";
/// CRIU's log level without debug messages.
const LOG_LEVEL: i32 = 4;

/// The directories of CRIU's files. They stay open, because CRIU opens them through this process.
#[derive(Debug)]
pub(crate) struct Directories {
    /// Absolute.
    pub(crate) images: PathBuf,
    images_open: File,
    work: Option<(PathBuf, File)>,
}

impl Directories {
    /// Opens the directories. Creates the work directory, and the image directory if requested.
    pub(crate) fn open(flags: &Flags, create_images: bool) -> Result<Self, Failure> {
        let path = |name| flags.value(name).filter(|path| !path.is_empty());
        let images = absolute(path("image-path").unwrap_or("checkpoint".as_ref()))?;
        let images_open = open(&images, create_images)?;
        let work = match path("work-path") {
            None => None,
            Some(work) => {
                let work = absolute(work)?;
                let opened = open(&work, true)?;
                Some((work, opened))
            }
        };
        Ok(Self { images, images_open, work })
    }

    /// Returns the path of a log file of CRIU.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.work.as_ref().map_or(&self.images, |(work, _)| work).join(name)
    }
}

fn open(path: &Path, create: bool) -> Result<File, Failure> {
    if create {
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Failure::io(format!("create the directory {path:?}"), error));
            }
            _ => {}
        }
    }
    File::open(path).map_err(|error| Failure::io(format!("open the directory {path:?}"), error))
}

/// Returns CRIU's options that checkpoint and restore set in the same way.
pub(crate) fn common_options(
    flags: &Flags,
    directories: &Directories,
    log: &str,
    annotations: &std::collections::BTreeMap<String, String>,
) -> Result<Options, Failure> {
    let mut options = Options::default();
    options
        .images_directory(directories.images_open.as_raw_fd())
        .log_level(LOG_LEVEL)
        .log_file(log)
        .notify(true)
        .orphan_terminal(true)
        .manage_cgroups(true)
        .cgroup_mode(cgroup_mode(flags.text("manage-cgroups-mode")?.unwrap_or("soft"))?)
        .external_unix_sockets(flags.is_on("ext-unix-sk")?)
        .tcp_established(flags.is_on("tcp-established")?)
        .shell_job(flags.is_on("shell-job")?)
        .file_locks(flags.is_on("file-locks")?)
        .lazy_pages(flags.is_on("lazy-pages")?)
        .auto_dedup(flags.is_on("auto-dedup")?)
        .empty_namespaces(empty_namespaces(flags)?);
    if let Some((_, work)) = &directories.work {
        options.work_directory(work.as_raw_fd());
    }
    match annotations.get(CONFIGURATION_ANNOTATION).map(String::as_str) {
        None => options.configuration(CONFIGURATION),
        Some("") => &mut options,
        Some(other) => options.configuration(other),
    };
    Ok(options)
}

/// Converts a mode to CRIU's `criu_cg_mode`.
fn cgroup_mode(word: &str) -> Result<i32, Failure> {
    match word {
        "ignore" => Ok(0),
        "soft" => Ok(3),
        "full" => Ok(4),
        "strict" => Ok(5),
        "" => Ok(6),
        other => Err(Failure::usage(format!("invalid manage-cgroups-mode {other:?}: soft, full, strict or ignore"))),
    }
}

fn empty_namespaces(flags: &Flags) -> Result<i32, Failure> {
    flags.values("empty-ns").try_fold(0, |all, kind| match kind.to_str() {
        Some("network") => Ok(all | libc::CLONE_NEWNET),
        _ => Err(Failure::usage(format!("empty-ns {kind:?}: only network can be left empty"))),
    })
}
