//! Recovery of a batch that a killed process left over, see `log.rs`. Every step can be interrupted and repeated.

use std::io;

use rustix::fd::BorrowedFd;

use super::{
    journal::{Entry, Journal, Phase, TERMINAL_CHUNK},
    pipe_marker::PipeCalls,
    pump::{consume, receive, write_all},
    sink::Sink,
};

/// Completes the batch of a journal. `fifo` is the stream that it was read from; none for a terminal, or if the FIFO is
/// gone.
pub(crate) fn recover(
    journal: &mut Journal,
    fifo: Option<(BorrowedFd<'_>, PipeCalls<'_>)>,
    sink: &mut Sink,
    line_max: usize,
) -> io::Result<()> {
    let Some((phase, entry)) = journal.pending()? else { return Ok(()) };
    match phase {
        Phase::Idle => {}
        // Nothing was consumed, so the next pass moves it again.
        Phase::Prepared => cut_back(&entry, sink)?,
        Phase::Written => {
            if let Some((fifo, calls)) = fifo {
                let consumed = consumed(journal, entry.length);
                calls.during(|| consume(journal, fifo, consumed..entry.length))?;
            }
        }
        Phase::Reading => {
            let length = journal.landing()[..TERMINAL_CHUNK].iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            write_received(journal, &Entry { length, ..entry }, sink, line_max)?;
        }
        Phase::Received => write_received(journal, &entry, sink, line_max)?,
    }
    journal.idle();
    Ok(())
}

/// Returns how much of the batch reached the landing area, which contained the complement of every byte before.
fn consumed(journal: &Journal, length: usize) -> usize {
    journal.data().iter().zip(journal.landing()).take(length).take_while(|(data, landed)| data == landed).count()
}

fn write_received(journal: &mut Journal, entry: &Entry, sink: &mut Sink, line_max: usize) -> io::Result<()> {
    cut_back(entry, sink)?;
    receive(journal, entry.length, sink, line_max);
    write_all(&journal.landing()[..entry.length], (entry.stream, line_max), sink, &mut Vec::new());
    Ok(())
}

fn cut_back(entry: &Entry, sink: &Sink) -> io::Result<()> {
    entry.log.map_or(Ok(()), |position| sink.cut_back(position))
}
