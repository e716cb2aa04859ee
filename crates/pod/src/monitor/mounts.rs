//! Requests for containers with too many mounts for one message.

use monitor_api::{Attachments, FRAME_FDS_MAX, Reply, Request, Role};

use super::{
    link::{Link, unexpected},
    supervisor::Monitor,
};
use crate::Error;

/// First minor version of the contract with the request `Mounts`.
const SINCE: u32 = 5;

impl Monitor {
    /// Sends the mounts that do not fit into a `Create` request ahead of it, and returns the attachments of the
    /// `Create` itself. Both must use the same connection.
    pub(super) async fn send_mounts(
        &self,
        link: &Link,
        container: &str,
        attachments: Attachments,
    ) -> Result<Attachments, Error> {
        if attachments.len() <= FRAME_FDS_MAX {
            return Ok(attachments);
        }
        let welcome = self.welcome()?;
        if welcome.minor < SINCE {
            return Err(Error::state(format!(
                "the running monitor ({}) takes at most {FRAME_FDS_MAX} mounts and streams of a container, not {}; \
                 upgrade it",
                welcome.version,
                attachments.len()
            )));
        }
        let (mut with_create, mut ahead) = (Attachments::new(), Vec::new());
        for (role, file) in attachments {
            match role {
                Role::Mount(_) => ahead.push((role, file)),
                _ => with_create.push(role, file),
            }
        }
        let mut ahead = ahead.into_iter();
        while ahead.len() > 0 {
            let mut part = Attachments::new();
            ahead.by_ref().take(FRAME_FDS_MAX).for_each(|(role, file)| part.push(role, file));
            let (reply, _) = link.request(Request::Mounts { container: container.to_owned() }, part).await?;
            if !matches!(reply, Reply::Done) {
                return Err(unexpected("Mounts", &reply));
            }
        }
        Ok(with_create)
    }
}
