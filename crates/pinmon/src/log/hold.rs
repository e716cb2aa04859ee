//! Which container's pipe a log writer is inside of, for the monitor to see: `pipe.rs` says why it may stay there.

use syscall::shared_word::SharedWord;

/// Calls on the pipes of one container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold<'a> {
    word: &'a SharedWord,
    serial: u64,
}

impl<'a> Hold<'a> {
    /// Of the container of this serial number.
    pub(crate) fn of(word: &'a SharedWord, serial: u64) -> Self {
        Self { word, serial }
    }

    /// Makes a call that may not return for as long as the container likes.
    pub(crate) fn within<T>(self, call: impl FnOnce() -> T) -> T {
        self.word.store(self.serial);
        let result = call();
        self.word.store(0);
        result
    }
}
