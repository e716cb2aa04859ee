//! Flow control windows: how much may be sent to a peer.

/// Initial window of SPDY/3.1 in bytes, unless SETTINGS change it.
pub(super) const INITIAL: i64 = 64 * 1024;
/// Maximum size of a window.
const MAX: i64 = 0x7fff_ffff;

/// The peer opened a window beyond the maximum.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overflow;

/// The window of a stream or of the connection. It can be negative after SETTINGS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window(pub(super) i64);

impl Window {
    pub(super) fn open(&mut self, delta: i64) -> Result<(), Overflow> {
        // Data that was sent before the peer started to use windows is included, so this can be very negative.
        self.0 += delta;
        if self.0 > MAX { Err(Overflow) } else { Ok(()) }
    }
}

/// Takes up to `requested` bytes from both windows and returns how many. If the peer does not use windows
/// (`flow_controlled` is false), takes all of them.
pub(super) fn take(connection: &mut Window, stream: &mut Window, requested: usize, flow_controlled: bool) -> usize {
    let open = connection.0.min(stream.0).max(0);
    let taken = if flow_controlled { requested.min(usize::try_from(open).unwrap_or(usize::MAX)) } else { requested };
    connection.0 -= taken as i64;
    stream.0 -= taken as i64;
    taken
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn neither_window_is_exceeded(c in -1000i64..1000, s in -1000i64..1000, requested in 0usize..3000) {
            let (mut connection, mut stream) = (Window(c), Window(s));
            let taken = take(&mut connection, &mut stream, requested, true);
            prop_assert!(taken <= requested);
            prop_assert!(taken == 0 || taken as i64 <= c.min(s));
            prop_assert_eq!((connection.0, stream.0), (c - taken as i64, s - taken as i64));
        }
    }

    #[test]
    fn data_for_a_peer_without_windows_is_counted() {
        let (mut connection, mut stream) = (Window(INITIAL), Window(INITIAL));
        assert_eq!(take(&mut connection, &mut stream, 1 << 20, false), 1 << 20);
        assert_eq!(take(&mut connection, &mut stream, 1, true), 0);
        assert_eq!(stream.open((1 << 20) - INITIAL + 5), Ok(()));
        assert_eq!(connection.open(1 << 20), Ok(()));
        assert_eq!(take(&mut connection, &mut stream, 10, true), 5);
    }

    #[test]
    fn a_window_has_a_maximum() {
        assert_eq!(Window(1).open(MAX), Err(Overflow));
        assert_eq!(Window(0).open(MAX), Ok(()));
    }
}
