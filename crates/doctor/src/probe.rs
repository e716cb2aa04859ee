//! What the kernel can do, tried with real system calls. Everything that a probe makes is removed at once.
//!
//! | probe | makes |
//! |---|---|
//! | pidfd, BPF, clock, limits | nothing |
//! | clone3, seccomp, user namespace | a child that ends at once |
//! | overlay, id-mapped mounts | detached mounts, and a directory on the file system of `data_dir` |
//! | nftables, veth, bridge | a thread in a network namespace of its own |

mod children;
mod mounts;
mod network;

use std::path::{Path, PathBuf};

use rustix::process::{PidfdFlags, Resource, getpid, pidfd_open};
use syscall::{bpf::Instruction, clock_state::ClockState};

use crate::Host;

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The kernel did it.
    Works,
    /// The kernel refused, for this reason.
    Fails(String),
    /// It could not be tried, for this reason.
    NotTried(String),
}

impl Outcome {
    fn of<T, E: std::fmt::Display>(result: Result<T, E>) -> Self {
        result.map_or_else(|error| Self::Fails(error.to_string()), |_| Self::Works)
    }
}

/// Space and inodes of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) bytes_free: u64,
    /// 0 if the file system has no fixed number.
    pub(crate) inodes: u64,
    pub(crate) inodes_free: u64,
}

impl Space {
    /// Returns the space of the file system that `path`, or its nearest ancestor that exists, is on.
    pub(crate) fn of(host: &Host, path: &Path) -> Option<Self> {
        let existing = nearest(host, path);
        let state = rustix::fs::statvfs(&existing).ok()?;
        Some(Self {
            path: path.to_owned(),
            bytes: state.f_blocks.saturating_mul(state.f_frsize),
            bytes_free: state.f_bavail.saturating_mul(state.f_frsize),
            inodes: state.f_files,
            inodes_free: state.f_favail,
        })
    }
}

/// Returns the path on the host of a directory, or of its nearest ancestor that exists.
fn nearest(host: &Host, path: &Path) -> PathBuf {
    path.ancestors().map(|path| host.path(path)).find(|path| path.is_dir()).unwrap_or_else(|| host.path("/"))
}

/// The results of all probes.
#[derive(Clone, Debug)]
pub struct Probes {
    /// pidfd_open(2).
    pub pidfd: Outcome,
    /// clone3(2) with `CLONE_PIDFD` and `CLONE_CLEAR_SIGHAND`.
    pub clone3: Outcome,
    /// A seccomp filter.
    pub seccomp: Outcome,
    /// A user namespace with a map.
    pub user_namespace: Outcome,
    /// An overlay on the file system of `data_dir`.
    pub overlay: Outcome,
    /// An id-mapped mount of a directory on that file system.
    pub id_map: Outcome,
    /// Whether readdir(3) on that file system returns the types of files (`d_type`).
    pub file_types: Outcome,
    /// nftables over netlink.
    pub nftables: Outcome,
    /// A pair of veth interfaces.
    pub veth: Outcome,
    /// A bridge.
    pub bridge: Outcome,
    /// A BPF program for devices of a cgroup.
    pub bpf: Outcome,
    /// The state of the clock.
    pub clock: Option<ClockState>,
    /// The hard limit of open files of this process; `None` inside if it is unlimited.
    pub open_files: Option<Option<u64>>,
}

impl Probes {
    /// Returns probes that were not tried.
    #[must_use]
    pub fn not_tried(reason: &str) -> Self {
        let not = || Outcome::NotTried(reason.to_owned());
        Self {
            pidfd: not(),
            clone3: not(),
            seccomp: not(),
            user_namespace: not(),
            overlay: not(),
            id_map: not(),
            file_types: not(),
            nftables: not(),
            veth: not(),
            bridge: not(),
            bpf: not(),
            clock: None,
            open_files: None,
        }
    }

    /// Tries everything on this machine, with `data_dir` as the directory of images. The probes of clone3 need a process
    /// with a single thread.
    #[must_use]
    pub fn run(data_dir: &Path) -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self::not_tried("it needs root");
        }
        let (children, network) = (children::probe(), network::probe());
        let mounts = mounts::probe(&nearest(&Host::real(), data_dir), children.namespace.as_ref());
        Self {
            pidfd: Outcome::of(pidfd_open(getpid(), PidfdFlags::empty())),
            clone3: children.clone3,
            seccomp: children.seccomp,
            user_namespace: children.user_namespace,
            overlay: mounts.overlay,
            id_map: mounts.id_map,
            file_types: mounts.file_types,
            nftables: network.nftables,
            veth: network.veth,
            bridge: network.bridge,
            bpf: Outcome::of(syscall::bpf::load_device_program(&ALLOW)),
            clock: syscall::clock_state::read().ok(),
            open_files: syscall::resource_limit::get(Resource::Nofile).ok().map(|limit| limit.maximum),
        }
    }
}

/// A device program that allows everything: `r0 = 1; exit`.
const ALLOW: [Instruction; 2] = [
    Instruction { code: 0xb7, dst: 0, src: 0, off: 0, imm: 1 },
    Instruction { code: 0x95, dst: 0, src: 0, off: 0, imm: 0 },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests run in threads; what needs a process with a single thread is tried by tests/system.
    #[test]
    fn this_kernel_has_what_the_engine_needs() {
        let dir = tempfile::tempdir().expect("a directory");
        let probes = Probes::run(&dir.path().join("not/there"));
        let network = [&probes.nftables, &probes.veth, &probes.bridge];
        let all = [&probes.pidfd, &probes.overlay, &probes.file_types].into_iter().chain(network);
        assert!({ all }.all(|outcome| *outcome == Outcome::Works), "{probes:?}");
        // A node of cgroup v1 may have a kernel without it.
        assert!(!matches!(probes.bpf, Outcome::NotTried(_)), "{probes:?}");
        assert!(matches!(probes.clone3, Outcome::NotTried(_)), "{probes:?}");
        assert!(probes.clock.is_some() && probes.open_files.is_some(), "{probes:?}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0, "nothing is left");
    }

    #[test]
    fn space_is_that_of_the_nearest_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let space = Space::of(&Host::at(dir.path()), Path::new("/var/lib/pinion")).expect("a file system");
        assert!(space.bytes >= space.bytes_free && space.path == Path::new("/var/lib/pinion"), "{space:?}");
    }
}
