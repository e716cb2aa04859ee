//! Who may wait for whom. What makes things (mounts, files, processes to be cloned) takes a place of a few; what stops,
//! kills, looks or lists takes none, so that it never waits for those.
//!
//! | work | place |
//! |---|---|
//! | a root file system and its mounts: on a thread that blocks, perhaps on the engine's disk | `mounts` |
//! | a pod's namespaces and files, in memory: on a thread that blocks for less than a millisecond | `pods` |
//! | volumes and logs, perhaps on a dead file server | those of [`crate::host_files`] |
//! | a clone by the monitor, which does one thing at a time | `clones` |
//! | signals, commands (exec), the start of what is made, removals, lists | none |

use std::{sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Error, ErrorKind};

/// Of some 500 threads that may block at once.
const MOUNTS: usize = 64;
const PODS: usize = 16;
/// A clone takes the monitor less than a millisecond, so a signal waits no longer than for these.
const CLONES: usize = 4;
/// How long whoever stops or removes waits for what was begun before.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Clone)]
pub(crate) struct Lanes {
    mounts: Arc<Semaphore>,
    pods: Arc<Semaphore>,
    clones: Arc<Semaphore>,
}

impl Default for Lanes {
    fn default() -> Self {
        let lane = |places| Arc::new(Semaphore::new(places));
        Self { mounts: lane(MOUNTS), pods: lane(PODS), clones: lane(CLONES) }
    }
}

impl Lanes {
    /// For work that mounts. Kept by the thread that works, not by who waits for it.
    pub(crate) async fn mount(&self) -> Result<OwnedSemaphorePermit, Error> {
        place(&self.mounts).await
    }

    /// For work that makes what a pod shares.
    pub(crate) async fn pod(&self) -> Result<OwnedSemaphorePermit, Error> {
        place(&self.pods).await
    }

    /// For a request to the monitor that clones.
    pub(crate) async fn clone_turn(&self) -> Result<OwnedSemaphorePermit, Error> {
        place(&self.clones).await
    }
}

async fn place(lane: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Error> {
    // Nobody closes it.
    Arc::clone(lane).acquire_owned().await.map_err(|_| Error::unavailable("the daemon is ending"))
}

/// Waits for a lock, but not for ever: whoever has it may hang in the kernel. `doing` tells what that is at.
pub(crate) async fn patiently<T>(lock: impl Future<Output = T>, doing: impl FnOnce() -> String) -> Result<T, Error> {
    tokio::time::timeout(PATIENCE, lock).await.map_err(|_| {
        let message = format!(
            "what was begun before is not done after {} s: {}; it goes on, try again",
            PATIENCE.as_secs(),
            doing()
        );
        Error::new(ErrorKind::DeadlineExceeded, message)
    })
}
