//! What a killed monitor left on its way: see `log.rs`. Every step can itself be cut off and done again.

use std::io;

use rustix::fd::BorrowedFd;

use super::{
    hold::Hold,
    journal::{Entry, Journal, Phase, TERMINAL_CHUNK},
    pump::{consume, write_all},
    sink::Sink,
};

/// Brings the journal's batch to its end. `fifo` is the stream it came from (none for a terminal, or where the FIFO is
/// gone).
pub(crate) fn recover(
    journal: &mut Journal,
    fifo: Option<(BorrowedFd<'_>, Hold<'_>)>,
    sink: &mut Sink,
    line_max: usize,
) -> io::Result<()> {
    let Some((phase, entry)) = journal.pending()? else { return Ok(()) };
    match phase {
        Phase::Idle => {}
        // Nothing was consumed: the next pass does it anew.
        Phase::Prepared => cut_back(&entry, sink)?,
        Phase::Written => {
            if let Some((fifo, hold)) = fifo {
                let consumed = consumed(journal, entry.length);
                hold.within(|| consume(journal, fifo, consumed..entry.length))?;
            }
        }
        Phase::Reading => {
            let length = journal.landing()[..TERMINAL_CHUNK].iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            journal.received(length);
            received(journal, &Entry { length, ..entry }, sink, line_max)?;
        }
        Phase::Received => received(journal, &entry, sink, line_max)?,
    }
    journal.idle();
    Ok(())
}

/// How much of the batch reached the landing area, which held the opposite of every byte before.
fn consumed(journal: &Journal, length: usize) -> usize {
    journal.data().iter().zip(journal.landing()).take(length).take_while(|(data, landed)| data == landed).count()
}

fn received(journal: &Journal, entry: &Entry, sink: &mut Sink, line_max: usize) -> io::Result<()> {
    cut_back(entry, sink)?;
    write_all(&journal.landing()[..entry.length], (entry.stream, line_max), sink, &mut Vec::new());
    Ok(())
}

fn cut_back(entry: &Entry, sink: &Sink) -> io::Result<()> {
    entry.log.map_or(Ok(()), |position| sink.cut_back(position))
}
