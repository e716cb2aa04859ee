//! A command in a container of a shim: its streams are FIFOs in the container's state directory, which the shim opens.

use std::{path::PathBuf, sync::Arc};

use rustix::{fd::OwnedFd, fs::OFlags};
use shim::{ErrorKind, ExecTask, Streams as ShimStreams};

use super::{
    request::{ExecRequest, SessionExit, UNKNOWN},
    streams::Streams,
};
use crate::{
    Error,
    container::{
        runtime::limit_to_own,
        shim::{exec_path, from_shim, task},
    },
    error::failed,
    parts::Parts,
    stdio::{SharedPipe, fifos, shared_pipe::close_all},
    store::Container,
};

/// A command that a shim has started.
pub(super) struct ShimWait {
    id: String,
    container: Arc<Container>,
    _fifos: Fifos,
}

/// FIFOs of a command. They are removed when this is dropped.
#[derive(Default)]
struct Fifos {
    paths: Vec<PathBuf>,
    /// Read end of standard input, so that nothing is lost that is written before the shim opens it.
    held: Vec<OwnedFd>,
}

impl Drop for Fifos {
    fn drop(&mut self) {
        let (paths, held) = (std::mem::take(&mut self.paths), std::mem::take(&mut self.held));
        close_all(held);
        offload::in_place(|| paths.iter().for_each(|path| drop(std::fs::remove_file(path))));
    }
}

impl Fifos {
    /// Creates a FIFO; returns its path as text.
    fn create(&mut self, path: PathBuf) -> Result<String, Error> {
        fifos::create_fifo(&path)?;
        let text = path.to_str().map(str::to_owned);
        self.paths.push(path);
        text.ok_or_else(|| Error::internal("the state directory is not valid UTF-8"))
    }
}

/// Has the shim start a command.
pub(super) async fn start(
    parts: &Arc<Parts>,
    container: &Arc<Container>,
    request: &ExecRequest,
    (id, mut process): (&str, oci::Process),
) -> Result<(ShimWait, Streams), Error> {
    limit_to_own(&mut process);
    let directory = parts.registry.records.directory(container.id());
    let (mut fifos, mut streams, mut paths) = (Fifos::default(), Streams::default(), ShimStreams::default());
    paths.terminal = request.tty;
    // Held open until the shim has opened them, so that the reader does not see an end before.
    let mut write_ends = Vec::new();
    let shared = |end| SharedPipe::anonymous(end, &container.pipe_calls, &parts.pipes);
    if request.stdin {
        let path = exec_path(&directory, id, "stdin");
        paths.stdin = fifos.create(path.clone())?;
        let bridge = fifos::open(&path, OFlags::RDWR)?;
        fifos.held.push(fifos::open(&path, OFlags::RDONLY | OFlags::NONBLOCK)?);
        streams.stdin = Some(shared(fifos::open(&path, OFlags::WRONLY)?));
        drop(bridge);
    }
    let outputs = [
        (request.stdout || request.tty, "stdout", &mut streams.stdout, &mut paths.stdout),
        (request.stderr && !request.tty, "stderr", &mut streams.stderr, &mut paths.stderr),
    ];
    for (is_requested, name, stream, text) in outputs {
        if is_requested {
            let path = exec_path(&directory, id, name);
            *text = fifos.create(path.clone())?;
            let read_end = fifos::open(&path, OFlags::RDONLY | OFlags::NONBLOCK)?;
            write_ends.push(fifos::open(&path, OFlags::WRONLY)?);
            *stream = Some(shared(read_end));
        }
    }
    let process = serde_json::to_vec(&process).map_err(failed("encode the process"))?;
    let task = task(container).await?;
    let started = async {
        task.exec(ExecTask { id, streams: paths, process }).await?;
        task.start(id).await
    };
    let started = started.await;
    close_all(write_ends);
    if let Err(error) = started {
        let (task, id) = (Arc::clone(&task), id.to_owned());
        offload::spawn(async move {
            let _ = task.kill(&id, rustix::process::Signal::KILL.as_raw(), true).await;
            let _ = task.delete(&id).await;
        });
        return Err(from_shim(error));
    }
    Ok((ShimWait { id: id.to_owned(), container: Arc::clone(container), _fifos: fifos }, streams))
}

impl ShimWait {
    /// Waits until the command has exited. All of its output is in its FIFOs then.
    pub(super) async fn exited(self) -> Result<SessionExit, Error> {
        let task = task(&self.container).await?;
        let code = match task.wait(&self.id).await {
            Ok(exit) => exit.code,
            Err(error) if error.kind == ErrorKind::NotFound => UNKNOWN,
            Err(error) => return Err(from_shim(error)),
        };
        if let Err(error) = task.delete(&self.id).await {
            tracing::debug!(container = self.container.id().as_str(), "{error}");
        }
        Ok(SessionExit { code, oom_killed: false })
    }
}

/// Kills a command. Returns false if it is gone.
pub(super) async fn kill(container: &Arc<Container>, id: &str) -> Result<bool, Error> {
    let killed = task(container).await?.kill(id, rustix::process::Signal::KILL.as_raw(), true).await;
    match killed {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::State) => Ok(false),
        Err(error) => Err(from_shim(error)),
    }
}
