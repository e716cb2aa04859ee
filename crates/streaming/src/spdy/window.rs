//! What may still be sent to a peer.

/// As SPDY/3.1 has it until SETTINGS say otherwise.
pub(super) const INITIAL: i64 = 64 * 1024;
/// Largest a window may become.
const MAX: i64 = 0x7fff_ffff;

/// The peer opened a window further than there is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overflow;

/// A stream's or the connection's window. It may be negative after SETTINGS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window(pub(super) i64);

impl Window {
    pub(super) fn open(&mut self, delta: i64) -> Result<(), Overflow> {
        // What was sent before the peer showed its windows is counted, and an i64 holds it.
        self.0 += delta;
        if self.0 > MAX { Err(Overflow) } else { Ok(()) }
    }
}

/// How much of `wanted` may be sent, which is then taken from both; `obeyed`: the peer has windows.
pub(super) fn take(connection: &mut Window, stream: &mut Window, wanted: usize, obeyed: bool) -> usize {
    let open = connection.0.min(stream.0).max(0);
    let taken = if obeyed { wanted.min(usize::try_from(open).unwrap_or(usize::MAX)) } else { wanted };
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
        fn never_more_than_both_windows_hold(c in -1000i64..1000, s in -1000i64..1000, wanted in 0usize..3000) {
            let (mut connection, mut stream) = (Window(c), Window(s));
            let taken = take(&mut connection, &mut stream, wanted, true);
            prop_assert!(taken <= wanted);
            prop_assert!(taken == 0 || taken as i64 <= c.min(s));
            prop_assert_eq!((connection.0, stream.0), (c - taken as i64, s - taken as i64));
        }
    }

    #[test]
    fn a_peer_without_windows_gets_all_and_it_is_counted() {
        let (mut connection, mut stream) = (Window(INITIAL), Window(INITIAL));
        assert_eq!(take(&mut connection, &mut stream, 1 << 20, false), 1 << 20);
        assert_eq!(take(&mut connection, &mut stream, 1, true), 0);
        assert_eq!(stream.open((1 << 20) - INITIAL + 5), Ok(()));
        assert_eq!(connection.open(1 << 20), Ok(()));
        assert_eq!(take(&mut connection, &mut stream, 10, true), 5);
    }

    #[test]
    fn a_window_has_an_end() {
        assert_eq!(Window(1).open(MAX), Err(Overflow));
        assert_eq!(Window(0).open(MAX), Ok(()));
    }
}
