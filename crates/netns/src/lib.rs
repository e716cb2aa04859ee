//! Many network namespaces in one process: create, pin, watch, identify, use, delete.
//!
//! ```no_run
//! use std::path::Path;
//!
//! let pool = netns::Pool::new(8);
//! let pins = netns::PinDir::open(Path::new("/run/netns/.store"), Path::new("/run/netns"))?;
//!
//! let namespace = pool.take()?; // a descriptor; `lo` is up
//! let path = pins.pin("blue", &namespace)?; // /run/netns/blue: ready as soon as it is visible
//! let listener = namespace.tcp_listener(([0, 0, 0, 0], 80).into())?; // only the socket is in the namespace
//! println!("{} is {}", path.display(), namespace.identity()?);
//! # drop(listener);
//! pins.unpin("blue")?;
//! # Ok::<(), netns::Error>(())
//! ```
//!
//! # Vocabulary
//! A [`Namespace`] is a descriptor. A *pin* keeps a namespace alive by a path ([`PinDir`]). An [`Identity`] shows
//! whether namespaces that were seen at different times are the same; names, inode numbers and times cannot show this.
//! A [`WeakNamespace`] refers to a namespace without keeping it alive. A [`Watch`] reports pins that appear and
//! disappear, a [`PinGroup`] removes many at once. A [`Pool`] creates namespaces in advance. [`PodNamespaces`] are the network, IPC and UTS namespaces that the
//! containers of a pod share.
//!
//! # No thread of the caller changes its namespace
//! setns(2) changes the namespace of the calling thread, and with it that of all tasks that an async runtime later
//! polls on the thread. So closures run on threads of this crate, which return to their original namespaces afterwards.
//! The exception is [`ThreadGuard`], for threads that switch often and run nothing else.
//! Only `socket()` and opening files in `/proc/net` and `/proc/sys/net` must happen in the namespace; bind, listen,
//! accept, connect, read, write and socket options need not, because a socket stays in the namespace it was created in.
//! So one [`EventLoop`] serves all namespaces without a switch.
//!
//! Do not create sockets on io_uring's worker threads (`IOSQE_ASYNC`): such a thread may still be in another namespace.
//!
//! Requires Linux 5.14 and `CAP_SYS_ADMIN`; [`Namespace::id`] is cheaper from 6.18 on.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod create_many;
mod error;
#[cfg(feature = "epoll")]
mod event_loop;
mod group;
mod identity;
mod memory;
mod namespace;
mod pin;
mod pod;
mod pool;
mod socket;
mod sysctl;
mod sysctl_dir;
mod sysctl_file;
mod teardown;
mod thread_guard;
#[cfg(feature = "tokio")]
mod tokio;
mod watch;
mod weak;
mod worker;

pub use create_many::CreateMany;
pub use error::{Error, ErrorKind};
#[cfg(feature = "epoll")]
pub use event_loop::{EventLoop, Interest, Key, Ready};
pub use group::PinGroup;
pub use identity::{Identity, NsId};
pub use memory::Memory;
pub use namespace::Namespace;
pub use pin::PinDir;
pub use pod::{IpcAndUts, PodNamespaces, create_ipc, create_uts};
pub use pool::{Pool, PoolMetrics};
pub use sysctl_dir::SysctlDir;
pub use sysctl_file::{read_sysctl, write_sysctl};
pub use thread_guard::ThreadGuard;
#[cfg(feature = "tokio")]
pub use tokio::AsyncWatch;
pub use watch::{Watch, WatchEvent};
pub use weak::WeakNamespace;
