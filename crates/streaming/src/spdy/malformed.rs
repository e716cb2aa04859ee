//! Violations of SPDY/3.1.

/// A violation of SPDY/3.1, after which the connection cannot be used any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer sent {0}")]
pub struct Malformed(pub(crate) &'static str);
