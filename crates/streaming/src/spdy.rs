//! The server side of SPDY/3.1 (draft-mbelshe-httpbis-spdy-00 and the changes of 3.1), as far as sessions need it.
//!
//! ```text
//! frame       bytes ↔ frames               headers     the compressed blocks of names and values
//! decoder     a peer's bytes → frames      window      how much may be sent
//! receiver    reads frames, fills inboxes  stream      a stream that the client opened
//! connection  the state that they share
//! ```
//!
//! The server opens no streams, and sends only empty headers.

mod connection;
mod decoder;
mod dictionary;
mod frame;
mod headers;
mod malformed;
mod receiver;
mod stream;
mod window;

pub use decoder::Decoder;
pub use frame::Frame;
pub use headers::{Deflater, Headers, Inflater};
pub use malformed::Malformed;

pub(crate) use connection::Limits;
pub(crate) use receiver::connect;
pub(crate) use stream::{Acceptor, Inbox, Offer, Outlet, Stream};

#[cfg(test)]
mod tests;
