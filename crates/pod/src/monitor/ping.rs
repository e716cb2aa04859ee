//! The monitor's heartbeat.

use std::time::Duration;

use monitor_api::{Attachments, Pong, Reply, Request};

use super::{Monitor, link::unexpected};
use crate::{Error, ErrorKind};

/// First minor version of the contract that has `Ping`.
const SINCE: u32 = 3;
/// No key is ever called so: releasing it changes nothing.
const NO_KEY: &str = "ping";

impl Monitor {
    /// Asks the connected monitor whether its event loop turns and which log file systems hang, and waits at most
    /// `deadline`. Unlike other requests it does not wait for a monitor that is being replaced. A monitor of before
    /// contract 1.3 knows no `Ping`: a request that changes nothing stands in for it.
    ///
    /// # Errors
    /// `Unavailable` when no monitor is connected, `DeadlineExceeded` when it does not answer in time.
    pub(crate) async fn ping(&self, deadline: Duration) -> Result<Pong, Error> {
        let welcome = self.welcome()?;
        let exchange = async {
            let link = self.link().await?;
            if welcome.minor < SINCE {
                let request = Request::Release { key: NO_KEY.to_owned() };
                return link.ask(request, Attachments::new()).await.map(|_| Pong::default());
            }
            match link.ask(Request::Ping, Attachments::new()).await? {
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
