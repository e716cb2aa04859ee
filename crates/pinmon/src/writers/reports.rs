//! Reports of log writers.

use monitor_api::{Attachments, Event, Reply};

use super::{Writer, find};
use crate::{
    child::Stage,
    log_writer::{
        channel::Incoming,
        order::{Order, Report},
    },
    monitor::Monitor,
    output::Place,
};

impl Monitor {
    /// Handles reports of a log writer, and sends further orders.
    pub(crate) fn writer_ready(&mut self, number: u64) {
        if let Some(place) = self.writers.place_of(number) {
            self.take_reports(place);
            self.send_orders(place);
        }
    }

    /// Handles all pending reports.
    pub(super) fn take_reports(&mut self, place: Place) {
        while let Some(writer) = self.writers.list.get(&place) {
            match writer.channel.receive::<Report>() {
                Ok(Incoming::Message(report, _)) => self.handle_report(report),
                // Its exit is reported by SIGCHLD.
                Ok(Incoming::Nothing | Incoming::Closed) => return,
                Err(error) => {
                    eprintln!("pinmon: receive the report of a log writer: {error}");
                    return;
                }
            }
        }
    }

    fn handle_report(&mut self, report: Report) {
        let (Report::Recovered { serial, .. }
        | Report::Reopened { serial }
        | Report::TapClosed { serial, .. }
        | Report::Lost { serial, .. }
        | Report::Held { serial }
        | Report::Drained { serial }) = report;
        let Self { containers, writers, journals, .. } = self;
        if writers.given_up_terminals.remove(&serial).is_some() {
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
                    self.notify_daemon(event);
                }
            }
            Report::Held { .. } => self.move_to_dedicated_writer(serial),
            // The output may have been closed in the meantime.
            Report::Drained { .. } if !output.is_open() => {}
            Report::Drained { .. } => self.drained(serial),
        }
    }

    /// Answers the `ReopenLog` requests of a container: its log writer writes to the new file, or hangs in the old one.
    pub(crate) fn reopened(&mut self, serial: u64) {
        let Self { containers, writers, .. } = self;
        let Some((_, output)) = find(containers, &mut writers.orphans, serial) else { return };
        for request_id in std::mem::take(&mut output.reopens) {
            self.reply(request_id, Ok((Reply::Done, Attachments::new())));
        }
    }

    /// Closes an output in the monitor, and queues the order to close it in its log writer, which performs the last
    /// close of the log: that removes an unlinked file, which takes time on a slow disk. Returns the place whose orders
    /// must be sent.
    fn close_output(&mut self, serial: u64) -> Option<Place> {
        let Self { containers, writers, .. } = self;
        let (_, output) = find(containers, &mut writers.orphans, serial)?;
        let place = output.place;
        output.close(writers.list.get(&place).is_some_and(Writer::is_usable));
        writers.orphans.remove(&serial);
        writers.list.get_mut(&place)?.final_orders.push(Order::Close { serial });
        Some(place)
    }

    /// Answers all `ReopenLog` requests.
    pub(crate) fn answer_reopens(&mut self) {
        let serials = self.containers.keys().chain(self.writers.orphans.keys());
        for serial in serials.copied().collect::<Vec<u64>>() {
            self.reopened(serial);
        }
    }

    /// Handles the end of a container's output: all of it is in the log.
    pub(crate) fn drained(&mut self, serial: u64) {
        self.reopened(serial);
        self.maintain_writers_later();
        let place = self.close_output(serial);
        match self.containers.get(&serial).map(|child| (&child.stage, &child.id)) {
            Some((Stage::Draining(_), _)) => self.report_exit(serial),
            Some((_, id)) => self.notify_daemon(Event::Drained { container: id.clone() }),
            None => {}
        }
        // Sent last, because no request waits for the close.
        place.into_iter().for_each(|place| self.send_orders(place));
    }
}
