//! Violations of RFC 6455.

/// A violation of RFC 6455, after which the connection cannot be used any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client sent {0}")]
pub struct Malformed(pub(crate) &'static str);
