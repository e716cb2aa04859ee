//! The log of a shim: a FIFO in its bundle, as in containerd.

use std::{path::Path, sync::Arc};

use rustix::fs::OFlags;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use super::{super::runtime::LOG, shim_of};
use crate::{
    Error,
    parts::Parts,
    stdio::{SharedPipe, fifos},
    store::Container,
};

/// Longest line that is reported.
const LINE_MAX: u64 = 4096;

/// Reports what the shim of a container writes to its log, at level debug, until the container is removed. A shim must not wait for room in the FIFO.
pub(super) fn follow(parts: &Arc<Parts>, container: &Arc<Container>) -> Result<(), Error> {
    let path = Path::new(&shim_of(container)?.bundle).join(LOG);
    // Open in both directions: it does not end when one shim ends and another one begins.
    let file = offload::in_place(|| fifos::open(&path, OFlags::RDWR | OFlags::NONBLOCK))?;
    let pipe = SharedPipe::anonymous(file, &container.pipe_calls, &parts.pipes).reader()?;
    let id = container.id().clone();
    let mut watch = container.watch();
    tokio::spawn(async move {
        let mut lines = BufReader::new(pipe);
        let report = async {
            loop {
                let mut line = Vec::new();
                match (&mut lines).take(LINE_MAX).read_until(b'\n', &mut line).await {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {
                        tracing::debug!(container = id.as_str(), "shim: {}", String::from_utf8_lossy(&line).trim_end())
                    }
                }
            }
        };
        // The sender is dropped with the container, after its removal.
        let removed = async { while watch.changed().await.is_ok() {} };
        tokio::select! {
            () = report => {}
            () = removed => {}
        }
    });
    Ok(())
}
