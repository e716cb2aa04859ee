//! Typed wrappers for Linux system calls that rustix lacks, one file per subject. All `unsafe` code is in this crate.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod allocator;
pub mod blocked_call;
pub mod bpf;
pub mod clock_state;
pub mod clone;
pub mod descriptor_cell;
pub mod descriptors;
pub mod directory_tree;
#[cfg(all(target_arch = "x86_64", target_feature = "crt-static"))]
mod early;
pub mod entry;
pub mod error_text;
pub mod exec;
pub mod file_handle;
pub mod file_lock;
pub mod idmapped_mount;
pub mod inherited;
pub mod keyring;
pub mod loopback;
pub mod mount_attributes;
pub mod mount_namespace;
pub mod mount_watch;
pub mod namespace;
pub mod netlink;
pub mod personality;
pub mod pidfd_exit;
pub mod pidfd_signal;
pub mod proc_file;
pub mod process_stat;
pub mod resource_limit;
pub mod scheduling;
pub mod seccomp;
pub mod shared_memory;
pub mod shared_word;
pub mod signal;
pub mod signal_fd;
pub mod signals;
pub mod socket_device;
pub mod socket_queue;
pub mod spawn;
pub mod tap;
pub mod terminal_output;
pub mod user_namespace;
pub mod wait_usage;
pub mod working_directory;
