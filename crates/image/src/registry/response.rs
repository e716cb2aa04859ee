//! Responses of registries: the limits of their bodies, and the causes of failed requests.

use std::time::Duration;

use reqwest::Response;

use crate::Error;

/// Timeout for status and headers of a response, and for the whole of a small body.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Formats an error with all of its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// Reads a body of at most `most` bytes within a minute.
pub(crate) async fn read_bounded(response: Response, most: usize) -> Result<Vec<u8>, Error> {
    let body = tokio::time::timeout(ANSWER_TIMEOUT, whole_body(response, most)).await;
    body.unwrap_or_else(|_| {
        let seconds = ANSWER_TIMEOUT.as_secs();
        Err(Error::unavailable(format!("the registry's response timed out after {seconds} s")))
    })
}

async fn whole_body(mut response: Response, most: usize) -> Result<Vec<u8>, Error> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > most => {
                return Err(Error::invalid(format!("the registry's response is larger than {most} bytes")));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(cause) => {
                return Err(Error::unavailable(format!(
                    "the registry's response was interrupted: {}",
                    chain(&cause.without_url())
                )));
            }
        }
    }
}
