//! What log writers report.

use monitor_api::{Attachments, Event, Reply};

use super::{Writer, find};
use crate::{
    child::Stage,
    log_writer::{
        line::Received,
        order::{Order, Report},
    },
    monitor::Monitor,
    output::Place,
};

impl Monitor {
    /// A writer reported something, or has room for more.
    pub(crate) fn writer_ready(&mut self, number: u64) {
        if let Some(place) = self.writers.place_of(number) {
            self.take_reports(place);
            self.send_orders(place);
        }
    }

    /// Takes all reports there are.
    pub(super) fn take_reports(&mut self, place: Place) {
        while let Some(writer) = self.writers.list.get(&place) {
            match writer.line.receive::<Report>() {
                Ok(Received::Message(report, _)) => self.reported(report),
                // Its end is reported by SIGCHLD.
                Ok(Received::Nothing | Received::Closed) => return,
                Err(error) => {
                    eprintln!("pinmon: a log writer's report: {error}");
                    return;
                }
            }
        }
    }

    fn reported(&mut self, report: Report) {
        let (Report::Recovered { serial, .. }
        | Report::Reopened { serial }
        | Report::TapClosed { serial, .. }
        | Report::Lost { serial, .. }
        | Report::Held { serial }
        | Report::Drained { serial }) = report;
        let Self { containers, writers, journals, .. } = self;
        if writers.forgotten.remove(&serial).is_some() {
            return;
        }
        let Some((id, output)) = find(containers, &mut writers.orphans, serial) else { return };
        match report {
            Report::Recovered { failed, .. } => journals.recovered(id, std::mem::take(&mut output.recover), failed),
            Report::Reopened { .. } => self.reopened(serial),
            Report::TapClosed { number, .. } => output.untap(number),
            Report::Lost { loss, message, .. } => {
                let dropped = loss.total;
                output.loss = loss;
                let event = message.map(|message| Event::LogFailed { container: id.to_owned(), message, dropped });
                if let Some(event) = event {
                    self.tell(event);
                }
            }
            Report::Held { .. } => self.held_too_long(serial),
            // It may have been closed since.
            Report::Drained { .. } if !output.is_open() => {}
            Report::Drained { .. } => self.drained(serial),
        }
    }

    /// Answers `ReopenLog`s: the writer writes the new file, or hangs in the old one.
    pub(crate) fn reopened(&mut self, serial: u64) {
        let Self { containers, writers, .. } = self;
        let Some((_, output)) = find(containers, &mut writers.orphans, serial) else { return };
        for asked in std::mem::take(&mut output.reopens) {
            self.reply(asked, Ok((Reply::Done, Attachments::new())));
        }
    }

    /// Closes output, and leaves its writer the order to close the log: the last close of a file that was unlinked
    /// removes it, which takes its time on a slow disk. Returns whose orders are to be sent.
    fn close_output(&mut self, serial: u64) -> Option<Place> {
        let Self { containers, writers, .. } = self;
        let (_, output) = find(containers, &mut writers.orphans, serial)?;
        let place = output.place;
        output.close(writers.list.get(&place).is_some_and(Writer::lives));
        writers.orphans.remove(&serial);
        writers.list.get_mut(&place)?.last.push(Order::Close { serial });
        Some(place)
    }

    /// Answers all `ReopenLog`s.
    pub(crate) fn answer_reopens(&mut self) {
        let serials = self.containers.keys().chain(self.writers.orphans.keys());
        for serial in serials.copied().collect::<Vec<u64>>() {
            self.reopened(serial);
        }
    }

    /// All output of a container that ended is in its log.
    pub(crate) fn drained(&mut self, serial: u64) {
        self.reopened(serial);
        self.look_after_writers_later();
        let place = self.close_output(serial);
        match self.containers.get(&serial).map(|child| (&child.stage, &child.id)) {
            Some((Stage::Draining(_), _)) => self.report_exit(serial),
            Some((_, id)) => self.tell(Event::Drained { container: id.clone() }),
            None => {}
        }
        // Nobody waits for the close.
        place.into_iter().for_each(|place| self.send_orders(place));
    }
}
