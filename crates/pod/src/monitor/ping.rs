//! Heartbeat of the monitor.

use std::time::Duration;

use monitor_api::{Attachments, Pong, Reply, Request};

use super::{link::unexpected, supervisor::Monitor};
use crate::{Error, ErrorKind};

/// First minor version of the contract with the request `Ping`.
const SINCE: u32 = 3;
/// A key that is never used: releasing it changes nothing.
const UNUSED_KEY: &str = "ping";

impl Monitor {
    /// Pings the connected monitor, for at most `deadline`. The reply shows that its event loop runs, and lists the log
    /// file systems that hang. Unlike other requests this one does not wait for a monitor that is being replaced. A
    /// monitor with a contract before 1.3 does not know `Ping`: a request that changes nothing is sent instead.
    ///
    /// # Errors
    /// `Unavailable` if no monitor is connected, `DeadlineExceeded` if it does not reply in time.
    pub(crate) async fn ping(&self, deadline: Duration) -> Result<Pong, Error> {
        let welcome = self.welcome()?;
        let exchange = async {
            let link = self.link().await?;
            if welcome.minor < SINCE {
                let request = Request::Release { key: UNUSED_KEY.to_owned() };
                return link.request(request, Attachments::new()).await.map(|_| Pong::default());
            }
            match link.request(Request::Ping, Attachments::new()).await? {
                (Reply::Pong(pong), _) => Ok(pong),
                (other, _) => Err(unexpected("Ping", &other)),
            }
        };
        tokio::time::timeout(deadline, exchange).await.unwrap_or_else(|_| {
            let message =
                format!("ping the monitor (pid {}): no answer within {} ms", welcome.pid, deadline.as_millis());
            Err(Error::new(ErrorKind::DeadlineExceeded, message))
        })
    }
}
