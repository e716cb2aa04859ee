//! CRI log format: `<RFC 3339 time with nanoseconds> <stdout|stderr> <F|P> <content>\n`.

use std::io::BufRead;

use crate::stream::StreamKind;

/// Maximum number of pieces of a batch. writev(2) takes 1024 slices, and each piece has three.
pub(crate) const PIECES_MAX: usize = 256;

/// Part of the output that becomes one log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Index of the first byte.
    pub(crate) start: usize,
    /// Index after the last byte, which is the newline if `full`.
    pub(crate) end: usize,
    /// Whether a newline ends it (`F`), or the line continues (`P`).
    pub(crate) full: bool,
}

impl Piece {
    /// Returns the length of its log entry.
    pub(crate) fn entry_length(&self) -> u64 {
        (Prefix::LENGTH + self.end - self.start + usize::from(!self.full)) as u64
    }
}

/// Cuts output into pieces of at most `line_max` bytes, and returns the number of bytes that they cover. A partial line
/// is not covered unless it is longer than `line_max` or `flush` is set.
pub(crate) fn cut(data: &[u8], line_max: usize, flush: bool, pieces: &mut Vec<Piece>) -> usize {
    let mut start = 0;
    pieces.clear();
    while start < data.len() && pieces.len() < PIECES_MAX {
        let rest = &data[start..];
        // A newline directly after line_max bytes still ends that piece.
        let window = &rest[..rest.len().min(line_max + 1)];
        let (end, full) = match newline(window) {
            Some(at) => (start + at + 1, true),
            None if rest.len() > line_max => (start + line_max, false),
            None if flush => (data.len(), false),
            None => break,
        };
        pieces.push(Piece { start, end, full });
        start = end;
    }
    start
}

/// Returns an upper bound of the length of the log entries of this output, cut as by [`cut`].
pub(crate) fn entries_max(data: &[u8], line_max: usize) -> u64 {
    let newlines = data.iter().filter(|byte| **byte == b'\n').count();
    let entries = newlines + data.len() / line_max + 1;
    (data.len() + entries * (Prefix::LENGTH + 1)) as u64
}

/// Finds the first newline. `skip_until` is the only public access to the vectorized search of std.
fn newline(data: &[u8]) -> Option<usize> {
    let mut rest = data;
    let skipped = rest.skip_until(b'\n').ok()?;
    (skipped > 0 && data[skipped - 1] == b'\n').then(|| skipped - 1)
}

/// Text before the content of a log entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix([u8; Prefix::LENGTH]);

impl Prefix {
    pub(crate) const LENGTH: usize = 40;
    const TAG: usize = 38;

    /// Formats the prefix of a full entry, for a time in nanoseconds since the epoch.
    pub(crate) fn new(at: u64, stream: StreamKind) -> Self {
        let mut text = *b"0000-00-00T00:00:00.000000000Z stdout F ";
        let (seconds, nanoseconds) = (at / 1_000_000_000, at % 1_000_000_000);
        let (year, month, day) = civil(seconds / 86_400);
        let of_day = seconds % 86_400;
        digits(&mut text[0..4], year);
        digits(&mut text[5..7], month);
        digits(&mut text[8..10], day);
        digits(&mut text[11..13], of_day / 3600);
        digits(&mut text[14..16], of_day / 60 % 60);
        digits(&mut text[17..19], of_day % 60);
        digits(&mut text[20..29], nanoseconds);
        text[31..37].copy_from_slice(stream.name().as_bytes());
        Self(text)
    }

    /// Converts it to the prefix of a partial entry.
    pub(crate) fn partial(mut self) -> Self {
        self.0[Self::TAG] = b'P';
        self
    }

    /// Returns the text, including the space before the content.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

fn digits(text: &mut [u8], mut value: u64) {
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// Converts days since the epoch to year, month and day of the proleptic Gregorian calendar. Years are counted from
/// March, so that the leap day is the last day of a year.
fn civil(day: u64) -> (u64, u64, u64) {
    const DAYS_TO_EPOCH: u64 = 719_468; // from 0000-03-01
    const DAYS_OF_ERA: u64 = 146_097; // 400 years
    let day = day + DAYS_TO_EPOCH;
    let (era, of_era) = (day / DAYS_OF_ERA, day % DAYS_OF_ERA);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests;
