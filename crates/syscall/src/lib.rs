//! Typed wrappers for Linux system calls that rustix lacks, one file per subject. All `unsafe` code is in this crate.
//!
//! Without the feature `engine`, which is on by default, it has only the modules about network namespaces and their pins.

#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

#[cfg(feature = "engine")]
pub mod allocator;
#[cfg(feature = "engine")]
pub mod blocked_call;
#[cfg(feature = "engine")]
pub mod bpf;
#[cfg(feature = "engine")]
pub mod clock_state;
#[cfg(feature = "engine")]
pub mod clone;
#[cfg(feature = "engine")]
pub mod descriptor_cell;
#[cfg(feature = "engine")]
pub mod descriptors;
#[cfg(feature = "engine")]
pub mod directory_tree;
#[cfg(all(feature = "engine", target_arch = "x86_64", target_feature = "crt-static"))]
mod early;
#[cfg(feature = "engine")]
pub mod entry;
#[cfg(feature = "engine")]
pub mod error_text;
#[cfg(feature = "engine")]
pub mod exec;
pub mod file_handle;
pub mod file_lock;
#[cfg(feature = "engine")]
pub mod idmapped_mount;
#[cfg(feature = "engine")]
pub mod inherited;
#[cfg(feature = "engine")]
pub mod keyring;
pub mod loopback;
#[cfg(feature = "engine")]
pub mod mount_attributes;
#[cfg(feature = "engine")]
pub mod mount_namespace;
pub mod mount_watch;
pub mod namespace;
#[cfg(feature = "engine")]
pub mod netlink;
#[cfg(feature = "engine")]
pub mod packet_socket;
#[cfg(feature = "engine")]
pub mod personality;
#[cfg(feature = "engine")]
pub mod pidfd_exit;
#[cfg(feature = "engine")]
pub mod pidfd_signal;
#[cfg(feature = "engine")]
pub mod proc_file;
#[cfg(feature = "engine")]
pub mod process_stat;
#[cfg(feature = "engine")]
pub mod random;
#[cfg(feature = "engine")]
pub mod resource_limit;
#[cfg(feature = "engine")]
pub mod scheduling;
#[cfg(feature = "engine")]
pub mod seccomp;
#[cfg(feature = "engine")]
pub mod shared_memory;
#[cfg(feature = "engine")]
pub mod shared_word;
#[cfg(feature = "engine")]
pub mod signal;
#[cfg(feature = "engine")]
pub mod signal_fd;
#[cfg(feature = "engine")]
pub mod signals;
#[cfg(feature = "engine")]
pub mod socket_device;
#[cfg(feature = "engine")]
pub mod socket_queue;
#[cfg(feature = "engine")]
pub mod spawn;
#[cfg(feature = "engine")]
pub mod tap;
#[cfg(feature = "engine")]
pub mod terminal_output;
#[cfg(feature = "engine")]
pub mod user_namespace;
#[cfg(feature = "engine")]
pub mod wait_usage;
#[cfg(feature = "engine")]
pub mod working_directory;
