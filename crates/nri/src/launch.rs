//! Plugins of the plugin directory: launched with the engine, and again when they end.

mod leftover;

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{net::UnixStream, process::Child};

use crate::{
    plugins::{PLUGINS_MAX, Plugins},
    session::{self, Launched, is_index, is_name},
};
pub(crate) use leftover::{Processes, end_leftover};

const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A plugin that ran for so long is launched again at once.
const STABLE: Duration = Duration::from_secs(60);

/// An executable of the plugin directory.
#[derive(Clone, Debug)]
pub(crate) struct Executable {
    path: PathBuf,
    index: String,
    base: String,
}

/// Lists the plugins of a directory in the order of their names. What is not named like a plugin is skipped.
pub(crate) fn discover(directory: &Path) -> Vec<Executable> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                tracing::warn!(directory = %directory.display(), %error, "NRI plugins cannot be listed");
            }
            return Vec::new();
        }
    };
    let mut found: Vec<Executable> = entries.flatten().filter_map(|entry| executable(&entry.path())).collect();
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found.truncate(PLUGINS_MAX);
    found
}

fn executable(path: &Path) -> Option<Executable> {
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return None;
    }
    let name = path.file_name()?.to_str()?;
    match name.split_once('-').filter(|(index, base)| is_index(index) && is_name(base)) {
        Some((index, base)) => {
            Some(Executable { path: path.to_owned(), index: index.to_owned(), base: base.to_owned() })
        }
        None => {
            tracing::warn!(plugin = name, "skipped: an NRI plugin is named <two digits>-<name>");
            None
        }
    }
}

/// Keeps a plugin running for as long as the engine exists.
pub(crate) async fn supervise(plugins: Weak<Plugins>, executable: Executable, processes: Arc<Processes>) {
    let mut pause = PAUSE;
    loop {
        let began = tokio::time::Instant::now();
        let Some(alive) = plugins.upgrade() else { return };
        let outcome = run(alive, &executable, &processes).await;
        if plugins.strong_count() == 0 {
            return;
        }
        if began.elapsed() > STABLE {
            pause = PAUSE;
        }
        let reason = outcome.err().unwrap_or_else(|| "it ended".to_owned());
        let name = executable.path.display().to_string();
        tracing::warn!(
            plugin = name,
            reason,
            pause_s = pause.as_secs(),
            "an NRI plugin is not running; launching it again"
        );
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

/// Launches a plugin and waits until it is gone.
async fn run(plugins: Arc<Plugins>, executable: &Executable, processes: &Arc<Processes>) -> Result<(), String> {
    let (own, peer) = std::os::unix::net::UnixStream::pair().map_err(|e| format!("create its socket: {e}"))?;
    own.set_nonblocking(true).map_err(|e| format!("set up its socket: {e}"))?;
    let own = UnixStream::from_std(own).map_err(|e| format!("set up its socket: {e}"))?;
    let mut child = spawn(executable, peer)?;
    let recorded = child.id().map(|pid| Processes::add(processes, pid));
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let launched = Launched { index: executable.index.clone(), base: executable.base.clone(), pid };
    let connected = session::connect(&plugins, own, Some(launched)).await;
    drop(plugins);
    let outcome = match connected {
        Ok(plugin) => {
            tokio::select! {
                () = plugin.closed() => {}
                _ = child.wait() => plugin.close("its process ended"),
            }
            Ok(())
        }
        Err(reason) => Err(reason),
    };
    // One that is still running hangs, or does not keep to the protocol.
    let _ = child.kill().await;
    drop(recorded);
    outcome
}

/// Starts the program, with its socket as standard input: the protocol names the descriptor in the environment.
fn spawn(executable: &Executable, socket: std::os::unix::net::UnixStream) -> Result<Child, String> {
    tokio::process::Command::new(&executable.path)
        .env_clear()
        .env("NRI_PLUGIN_NAME", &executable.base)
        .env("NRI_PLUGIN_IDX", &executable.index)
        .env("NRI_PLUGIN_SOCKET", "0")
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(socket)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("launch it: {error}"))
}
