//! The pieces in which received data is buffered and passed on, independent of the protocol.

/// Maximum number of received pieces that one stream buffers: with [`PIECE`] 128 KiB.
pub(crate) const PIECES: usize = 8;
/// Maximum size of a piece in bytes.
pub(crate) const PIECE: usize = 16 * 1024;
