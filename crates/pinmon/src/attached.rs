//! Events of attached clients' pipes.

use crate::{clock, monitor::Monitor};

impl Monitor {
    /// A client's pipe has room again, or broke.
    pub(crate) fn tap_ready(&mut self, serial: u64, number: u8, broken: bool) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        let rested = child.output.taps.rest();
        child.output.taps.ready(number, broken);
        if rested && !child.output.taps.rest() {
            self.move_output(serial, false);
        }
    }

    /// A client's patience may have run out.
    pub(crate) fn taps_due(&mut self, serial: u64) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        child.output.taps.expire(clock::monotonic());
        if !child.output.taps.rest() {
            self.move_output(serial, false);
        }
    }
}
