//! Many network namespaces in one process: create, pin, identify, enter, pool.
//!
//! ```no_run
//! use std::{net::TcpListener, path::Path};
//!
//! let pool = netns::Pool::new(8);
//! let pins = netns::PinDir::open(Path::new("/run/netns/.store"), Path::new("/run/netns"))?;
//!
//! let namespace = pool.take()?; // a descriptor; `lo` is up
//! let path = pins.pin("blue", &namespace)?; // /run/netns/blue: ready as soon as it is visible
//! let listener = namespace.enter(|| TcpListener::bind("0.0.0.0:80"))?; // only the socket is in the namespace
//! println!("{} is {}", path.display(), namespace.identity()?);
//! # drop(listener);
//! pins.unpin("blue")?;
//! # Ok::<(), netns::Error>(())
//! ```
//!
//! # Vocabulary
//! A [`Namespace`] is a descriptor. A *pin* keeps a namespace alive by a path ([`PinDir`]). An [`Identity`] shows
//! whether namespaces that were seen at different times are the same; names, inode numbers and times cannot show this.
//! A [`Pool`] creates namespaces in advance. [`PodNamespaces`] are the network, IPC and UTS namespaces that the
//! containers of a pod share.
//!
//! # No thread of the caller changes its namespace
//! setns(2) changes the namespace of the calling thread, and with it that of all tasks that an async runtime later
//! polls on the thread. So closures run on threads of this crate, which return to their original namespaces afterwards.
//! Only `socket()` and opening files in `/proc/net` and `/proc/sys/net` must happen in the namespace; bind, listen,
//! accept, connect, read, write and socket options need not, because a socket stays in the namespace it was created in.
//!
//! Do not create sockets on io_uring's worker threads (`IOSQE_ASYNC`): such a thread may still be in another namespace.
//!
//! Requires Linux 4.11; [`Namespace::id`] requires 5.14 and is cheaper from 6.18 on. Requires `CAP_SYS_ADMIN`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod error;
mod identity;
mod namespace;
mod pin;
mod pod;
mod pool;
mod sysctl;
mod teardown;
mod worker;

pub use error::{Error, ErrorKind};
pub use identity::{Identity, NsId};
pub use namespace::Namespace;
pub use pin::PinDir;
pub use pod::{IpcAndUts, PodNamespaces, create_ipc, create_uts};
pub use pool::{Pool, PoolMetrics};
