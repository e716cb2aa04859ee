//! What the containers of a pod share. All of it exists without a process: the network namespace is pinned; the IPC and
//! UTS namespaces, `/dev/shm` and the files of `/etc` are kept as descriptors, here and in the monitor. Only a pod with
//! a shared PID namespace has a process, its [`init`], and only once a container needs it.

pub(crate) mod files;
mod hostname;
mod id_map;
mod init;
mod leftover_init;
mod shared;
pub(crate) mod shim_mounts;
mod support;
mod tmpfs;

pub(crate) use files::{FILES, SHARED_FILES};
pub(crate) use hostname::hostname;
pub(crate) use id_map::root_of;
pub(crate) use init::{forget_ended_init, has_lost_init, pid_namespace};
pub(crate) use shared::{KINDS, SHM, SharedResource, derive, id_map, make_owned, make_shared, pin_shared};
#[cfg(test)]
pub(crate) use tmpfs::make_shm;
