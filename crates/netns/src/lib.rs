//! Many network namespaces in one process: create, pin, identify, enter, pool.
//!
//! ```no_run
//! use std::{net::TcpListener, path::Path};
//!
//! let pool = netns::Pool::new(8);
//! let pins = netns::PinDir::open(Path::new("/run/netns/.store"), Path::new("/run/netns"))?;
//!
//! let namespace = pool.take()?; // a descriptor; `lo` is up
//! let path = pins.pin("blue", &namespace)?; // /run/netns/blue: visible means ready
//! let listener = namespace.enter(|| TcpListener::bind("0.0.0.0:80"))?; // the socket stays inside, this thread does
//! not move println!("{} is {}", path.display(), namespace.identity()?);
//! # drop(listener);
//! pins.unpin("blue")?;
//! # Ok::<(), netns::Error>(())
//! ```
//!
//! # Vocabulary
//! A [`Namespace`] is a descriptor. A *pin* keeps a namespace by a path ([`PinDir`]). An [`Identity`] tells whether two
//! things seen at different times are the same namespace: names, inode numbers and times cannot. A [`Pool`] has
//! namespaces ready. [`PodNamespaces`] are the network, IPC and UTS namespaces that the containers of one pod share.
//!
//! # No thread of yours moves
//! setns(2) changes the calling thread for whatever runs on it next; in an async program that is anyone's task. So all
//! visits happen on threads of this crate, which go home after each. Only `socket()` and the opening of `/proc/net` and
//! `/proc/sys/net` need a visit; bind, listen, accept, connect, read, write and socket options do not, for a socket
//! stays in the namespace it was made in.
//!
//! Do not make sockets through io_uring's worker threads (`IOSQE_ASYNC`): an older worker may still be in another
//! namespace.
//!
//! Kernel: 4.11; [`Namespace::id`] 5.14, and cheaper from 6.18. Needs `CAP_SYS_ADMIN`.
#![forbid(unsafe_code)]

mod error;
mod identity;
mod namespace;
mod pin;
mod pod;
mod pool;
mod sysctl;
mod teardown;
mod worker;

pub use error::Error;
pub use identity::{Identity, NsId};
pub use namespace::Namespace;
pub use pin::PinDir;
pub use pod::{IpcAndUts, PodNamespaces, create_ipc, create_uts};
pub use pool::{Pool, PoolFigures};
