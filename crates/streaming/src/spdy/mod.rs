//! SPDY/3.1 as a server (draft-mbelshe-httpbis-spdy-00 and its 3.1 changes): what is needed of it to carry streams.
//!
//! ```text
//! frame       bytes ↔ frames               headers     the compressed blocks of names and values
//! decoder     a peer's bytes → frames      window      what may still be sent
//! connection  reads frames, hands pieces to inboxes    stream   opened by the client, answered here
//! ```
//!
//! The server opens no streams, pushes nothing and sends no headers but empty ones.

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
