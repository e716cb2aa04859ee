//! The server side of SPDY/3.1 (draft-mbelshe-httpbis-spdy-00 and the changes of 3.1), as far as sessions need it.
//!
//! ```text
//! frame       bytes ↔ frames               headers     the compressed blocks of names and values
//! decoder     a peer's bytes → frames      window      how much may be sent
//! connection  reads frames, fills inboxes            stream   a stream that the client opened
//! ```
//!
//! The server opens no streams, and sends only empty headers.

mod connection;
mod decoder;
mod dictionary;
mod frame;
mod headers;
mod stream;
mod window;

pub use decoder::{Decoder, Malformed};
pub use frame::Frame;
pub use headers::{Deflater, Headers, Inflater};

pub(crate) use connection::{Limits, connect};
pub(crate) use stream::{Acceptor, Credit, Offer, Outlet, Stream};

#[cfg(test)]
mod tests;
