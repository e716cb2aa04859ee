//! Log writers: reports and exits that concern containers.

use super::Monitor;
use crate::{
    output::{AlarmOutcome, Place},
    process::ProcessExit,
};

impl Monitor {
    /// Handles reports of a log writer, and sends further orders.
    pub(crate) fn writer_ready(&mut self, number: u64) {
        if let Some(place) = self.outputs.place_of(number) {
            self.take_reports(place);
            self.outputs.send_orders(place, &mut self.services);
        }
    }

    /// Handles an alarm of a log writer: a step takes long.
    pub(crate) fn alarm_expired(&mut self, number: u64) {
        if let AlarmOutcome::Abandon(place) = self.outputs.alarm_expired(number, &mut self.services) {
            self.take_reports(place);
            self.outputs.abandon_writer(place, &mut self.services);
        }
    }

    /// Handles a reaped child. Returns whether it was a log writer.
    pub(super) fn writer_reaped(&mut self, pid: i32, exit: ProcessExit) -> bool {
        if self.outputs.reaped_unused_writer(pid) {
            return true;
        }
        let Some(place) = self.outputs.place_of_pid(pid) else { return false };
        // Its last reports.
        self.take_reports(place);
        self.outputs.replace_writer(place, exit, &mut self.services);
        true
    }

    fn take_reports(&mut self, place: Place) {
        while let Some(serial) = self.outputs.next_drained(place, &mut self.services) {
            self.drained(serial);
        }
    }
}
