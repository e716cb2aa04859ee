//! Reports of log writers.

use monitor_api::Event;

use super::{Outputs, streams::Place, writer::Writer};
use crate::{
    log_writer::{
        channel::Incoming,
        order::{Order, Report},
    },
    services::Services,
};

impl Outputs {
    /// Handles pending reports of a log writer. Returns the serial number of an output that is drained, to be passed to
    /// [`Outputs::finish`]; `None`: all reports were handled.
    pub(crate) fn next_drained(&mut self, place: Place, services: &mut Services) -> Option<u64> {
        loop {
            match self.writers.list.get(&place)?.channel.receive::<Report>() {
                Ok(Incoming::Message(report, _)) => {
                    if let Some(serial) = self.handle_report(report, services) {
                        return Some(serial);
                    }
                }
                // Its exit is reported by SIGCHLD.
                Ok(Incoming::Nothing | Incoming::Closed) => return None,
                Err(error) => {
                    eprintln!("pinmon: receive the report of a log writer: {error}");
                    return None;
                }
            }
        }
    }

    /// Handles a report. Returns the serial number of the output if it is drained.
    fn handle_report(&mut self, report: Report, services: &mut Services) -> Option<u64> {
        let (Report::Recovered { serial, .. }
        | Report::Reopened { serial }
        | Report::TapClosed { serial, .. }
        | Report::Lost { serial, .. }
        | Report::Held { serial }
        | Report::Drained { serial }) = report;
        if self.writers.given_up_terminals.remove(&serial).is_some() {
            return None;
        }
        let output = self.map.get_mut(serial)?;
        match report {
            Report::Recovered { failed, .. } => {
                let names = std::mem::take(&mut output.recover);
                self.journals.recovered(&output.container, names, failed);
            }
            Report::Reopened { .. } => self.reopened(serial, services),
            Report::TapClosed { number, .. } => output.untap(number),
            Report::Lost { loss, message, .. } => {
                let dropped = loss.total;
                output.loss = loss;
                if let Some(message) = message {
                    services.notify(Event::LogFailed { container: output.container.clone(), message, dropped });
                }
            }
            Report::Held { .. } => self.move_to_dedicated_writer(serial, services),
            // The output may have been closed in the meantime.
            Report::Drained { .. } => return output.is_open().then_some(serial),
        }
        None
    }

    /// Answers the `ReopenLog` requests of a container: its log writer writes to the new file, or hangs in the old one.
    pub(crate) fn reopened(&mut self, serial: u64, services: &mut Services) {
        let Some(output) = self.map.get_mut(serial) else { return };
        for request_id in std::mem::take(&mut output.reopens) {
            services.reply_done(request_id);
        }
    }

    /// Answers all `ReopenLog` requests.
    pub(crate) fn answer_reopens(&mut self, services: &mut Services) {
        for serial in self.map.iter().map(|(serial, _)| serial).collect::<Vec<u64>>() {
            self.reopened(serial, services);
        }
    }

    /// Ends an output that is in the log completely. Returns the place whose orders must be sent, which no request
    /// waits for.
    pub(crate) fn finish(&mut self, serial: u64, services: &mut Services) -> Option<Place> {
        self.reopened(serial, services);
        self.maintain_later(services);
        self.close(serial)
    }

    /// Closes an output in the monitor, and queues the order to close it in its log writer, which performs the last
    /// close of the log: that removes an unlinked file, which takes time on a slow disk.
    fn close(&mut self, serial: u64) -> Option<Place> {
        let output = self.map.get_mut(serial)?;
        let place = output.place;
        output.close(self.writers.list.get(&place).is_some_and(Writer::is_usable));
        self.map.orphans.remove(&serial);
        self.writers.list.get_mut(&place)?.final_orders.push(Order::Close { serial });
        Some(place)
    }
}
