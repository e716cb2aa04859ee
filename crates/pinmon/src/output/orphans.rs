//! Output of deleted containers, which is still moved to their logs.

use super::{Outputs, streams::Output};
use crate::{
    log_writer::order::{EndPhase, Order},
    services::Services,
};

/// Maximum number of deleted containers whose output is still moved.
const ORPHANS_MAX: usize = 64;

impl Outputs {
    /// Keeps moving the output of a deleted container, up to a maximum number of them.
    pub(crate) fn release(&mut self, serial: u64, services: &mut Services) {
        let Some(mut output) = self.map.remove(serial) else { return };
        let reopens = std::mem::take(&mut output.reopens);
        if output.is_open() && output.awaits_log {
            // No request can attach a log any longer.
            let id = &output.container;
            eprintln!("pinmon: output of deleted container {id} is dropped: it has no log");
            self.journals.recovered(id, std::mem::take(&mut output.recover), false);
            output.close(false);
        } else if output.is_open() {
            output.end(EndPhase::Final);
            if self.map.orphans.len() >= ORPHANS_MAX {
                self.give_up_an_orphan(services);
            }
            self.map.orphans.insert(serial, output);
            self.hand_over(serial, services);
        }
        self.maintain_later(services);
        for request_id in reopens {
            services.reply_done(request_id);
        }
    }

    fn give_up_an_orphan(&mut self, services: &mut Services) {
        let Some((serial, dropped)) = self.take_orphan() else { return };
        eprintln!("pinmon: output of deleted container {} is dropped: its log hangs", dropped.container);
        self.journals.recovered(&dropped.container, dropped.recover, false);
        if let Some(writer) = self.writers.list.get_mut(&dropped.place) {
            writer.final_orders.push(Order::Forget { serial });
            let terminals = dropped.streams.into_iter().filter(|stream| stream.file.terminal().is_some());
            self.writers.given_up_terminals.insert(serial, (dropped.place, terminals.collect()));
            self.send_orders(dropped.place, services);
        }
    }

    /// Takes the oldest orphan, preferably of a container that blocks log writers.
    fn take_orphan(&mut self) -> Option<(u64, Output)> {
        let orphans = &mut self.map.orphans;
        let dedicated = orphans.iter().find(|(_, output)| output.place.dedicated.is_some()).map(|(serial, _)| *serial);
        dedicated.and_then(|serial| orphans.remove_entry(&serial)).or_else(|| orphans.pop_first())
    }

    /// Gives up the output of deleted containers that was not moved in time.
    pub(crate) fn drop_orphans(&mut self) {
        for output in std::mem::take(&mut self.map.orphans).into_values() {
            let id = &output.container;
            eprintln!("pinmon: output of deleted container {id} is dropped: the monitor exits");
            self.journals.recovered(id, output.recover.clone(), false);
            self.journals.forget(id);
        }
    }
}
