//! Start of the interface.

use std::sync::Arc;

use tokio::net::UnixListener;

use crate::{
    launch::{Processes, discover, end_leftover, supervise},
    listen,
    plugins::{Host, Plugins},
};

impl Plugins {
    /// Launches the plugins of the directory, and accepts others at the socket. Does not wait for any of them. Must be
    /// called once, when the engine can describe its pods and containers.
    ///
    /// # Errors
    /// If the socket cannot be created.
    pub async fn start(self: &Arc<Self>, host: Arc<dyn Host>) -> Result<(), String> {
        let _only_once = self.host.set(host);
        let config = self.config.clone();
        let prepared = offload::blocking(move || {
            end_leftover(&config.process_record);
            let listener = config.socket.as_deref().map(listen::bind).transpose()?;
            Ok::<_, String>((discover(&config.plugin_dir), listener))
        });
        let (executables, listener) = prepared.await.map_err(|e| e.to_string())??;
        let processes = Processes::new(&self.config.process_record);
        for executable in executables {
            tokio::spawn(supervise(Arc::downgrade(self), executable, Arc::clone(&processes)));
        }
        if let Some(listener) = listener {
            let listener = UnixListener::from_std(listener).map_err(|e| format!("watch the NRI socket: {e}"))?;
            tokio::spawn(listen::accept(Arc::downgrade(self), listener));
        }
        Ok(())
    }
}
