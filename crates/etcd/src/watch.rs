//! Waits for changes.

use serde_json::json;

use crate::{
    Client, Error,
    connection::chain,
    message::{Streamed, WatchResponse, encode, end_of},
};

/// Longest message of a watch in bytes.
const MESSAGE_MAX: usize = 8 << 20;

impl Client {
    /// Waits until a key with a prefix is changed after a revision. What has changed is not returned: read the range again.
    /// So a revision that the cluster has compacted counts as a change, too.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the member ends the connection or responds with something else, [`Error::Refused`].
    pub async fn wait_for_change(&self, prefix: &str, revision: i64) -> Result<(), Error> {
        const OPERATION: &str = "watch keys";
        let request = json!({"create_request": {"key": encode(prefix), "range_end": encode(end_of(prefix)),
            "start_revision": revision.saturating_add(1).to_string()}});
        let unavailable = |reason: String| Error::Unavailable { operation: OPERATION, reason };
        let mut response = self.connection.open(OPERATION, "/v3/watch", &request).await?;
        let mut buffer: Vec<u8> = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| unavailable(chain(&error)))? {
            buffer.extend_from_slice(&chunk);
            // A message that is this long describes changes, whatever they are.
            if buffer.len() > MESSAGE_MAX {
                return Ok(());
            }
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let message: Streamed<WatchResponse> =
                    serde_json::from_slice(&line).map_err(|error| unavailable(format!("its response: {error}")))?;
                if let Some(failure) = message.error {
                    return Err(Error::Refused { operation: OPERATION, code: failure.code, message: failure.message });
                }
                let event = message.result.unwrap_or_default();
                if event.canceled || !event.events.is_empty() {
                    return Ok(());
                }
            }
        }
        Err(unavailable("the member closed the connection".into()))
    }
}
