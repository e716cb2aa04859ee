//! The resolvers of the node: `/etc/resolv.conf`.

use std::{
    fs::File,
    io::{self, Read},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::PORT;

/// Number of bytes that are read of the file.
const FILE_MAX: u64 = 64 << 10;
/// Number of servers that are used, as in resolv.conf(5).
const SERVERS_MAX: usize = 3;
/// How long the servers are used before the file is read again.
const FRESH: Duration = Duration::from_secs(5);

/// The settings of a file in the format of resolv.conf(5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFile {
    /// Addresses of servers.
    pub servers: Vec<IpAddr>,
    /// Search domains.
    pub searches: Vec<String>,
    /// Options such as `ndots:5`.
    pub options: Vec<String>,
}

impl NodeFile {
    /// Parses a text. What resolv.conf(5) does not define is ignored, as by every resolver.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut file = Self::default();
        for line in text.lines().filter(|line| !line.starts_with(['#', ';'])) {
            let mut words = line.split_whitespace();
            match words.next() {
                // The scope of a link-local address is not used.
                Some("nameserver") => file.servers.extend(words.next().and_then(|word| word.parse::<IpAddr>().ok())),
                Some("search" | "domain") => file.searches = words.map(str::to_owned).collect(),
                Some("options") => file.options.extend(words.map(str::to_owned)),
                _ => {}
            }
        }
        file.servers.truncate(SERVERS_MAX);
        file
    }
}

/// Reads a file in the format of resolv.conf(5). Blocks.
///
/// # Errors
/// The kernel's error.
pub fn read_node_file(path: &Path) -> io::Result<NodeFile> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX).read_to_end(&mut bytes)?;
    Ok(NodeFile::parse(&String::from_utf8_lossy(&bytes)))
}

/// The servers of the node's file, which is read in the background: no query waits for a disk that hangs.
#[derive(Debug)]
pub(crate) struct NodeServers {
    path: PathBuf,
    known: Mutex<Option<(Instant, Vec<SocketAddr>)>>,
    is_reading: AtomicBool,
    /// Notified at the end of a read.
    is_read: Notify,
}

impl NodeServers {
    pub(crate) fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Self { path, known: Mutex::default(), is_reading: AtomicBool::new(false), is_read: Notify::new() })
    }

    fn known(&self) -> Option<(Instant, Vec<SocketAddr>)> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the servers. Reads the file first if it was never read; later it is read while old servers are in use.
    pub(crate) async fn get(self: &Arc<Self>) -> Vec<SocketAddr> {
        let known = self.known();
        let is_fresh = known.as_ref().is_some_and(|(read, _)| read.elapsed() < FRESH);
        // Before the file is looked at, so that the end of a read in progress is not missed.
        let is_read = self.is_read.notified();
        tokio::pin!(is_read);
        is_read.as_mut().enable();
        if !is_fresh && !self.is_reading.swap(true, Ordering::AcqRel) {
            let this = Arc::clone(self);
            drop(offload::blocking(move || this.read()));
        }
        if known.is_none() && self.known().is_none() {
            let _ = tokio::time::timeout(FRESH, is_read).await;
        }
        self.known().map(|(_, servers)| servers).unwrap_or_default()
    }

    fn read(&self) {
        if let Ok(file) = read_node_file(&self.path) {
            let servers = file.servers.into_iter().map(|ip| SocketAddr::new(ip, PORT)).collect();
            *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), servers));
        }
        self.is_reading.store(false, Ordering::Release);
        self.is_read.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_the_node_is_parsed() {
        let text = "# x\nnameserver 10.0.0.1\nnameserver fe80::1%eth0\nnameserver ::1\nsearch a.b c.d\noptions ndots:5 rotate\nfoo\n";
        let file = NodeFile::parse(text);
        assert_eq!(file.servers, ["10.0.0.1".parse::<IpAddr>().expect("ip"), "::1".parse().expect("ip")]);
        assert_eq!(
            (file.searches, file.options),
            (vec!["a.b".into(), "c.d".into()], vec!["ndots:5".into(), "rotate".into()])
        );
    }
}
