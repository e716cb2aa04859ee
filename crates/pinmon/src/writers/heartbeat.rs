//! What the heartbeat reports of log writers.

use std::{collections::BTreeMap, time::Duration};

use monitor_api::{LogDevice, Pong, StuckWriter};
use rustix::fs::{major, minor};

use super::{STUCK, Writer, held::COMMON};
use crate::{monitor::Monitor, output::Place};

/// Of one file system: how long the longest step takes, whose it is, and how many containers wait.
#[derive(Default)]
struct Stuck {
    waits: Duration,
    pid: u32,
    containers: usize,
}

impl Monitor {
    /// File systems that writers wait for.
    pub(crate) fn pong(&self) -> Pong {
        let mut devices: BTreeMap<Option<u64>, Stuck> = BTreeMap::new();
        for (place, writer) in &self.writers.list {
            let Some(waits) = self.waits_for_files(*place, writer) else { continue };
            let device = devices.entry(place.device).or_default();
            device.containers += self.outputs_of(*place);
            if waits >= device.waits {
                (device.waits, device.pid) = (waits, writer.pid.unsigned_abs());
            }
        }
        let report = |(device, stuck): (Option<u64>, Stuck)| StuckWriter {
            device: device.map(|device| LogDevice { major: major(device), minor: minor(device) }),
            since_ms: u64::try_from(stuck.waits.as_millis()).unwrap_or(u64::MAX),
            containers: u32::try_from(stuck.containers).unwrap_or(u32::MAX),
            pid: stuck.pid,
        };
        Pong { stuck: devices.into_iter().map(report).collect() }
    }

    /// How long, if it is long. One in a container's pipe, or after one that is, waits for no file system.
    fn waits_for_files(&self, place: Place, writer: &Writer) -> Option<Duration> {
        let hung = &self.writers.hung;
        let in_pipe = match place.apart {
            Some(COMMON) => !hung.is_empty(),
            apart => hung.iter().any(|(_, serial)| apart == Some(*serial)),
        };
        writer.waits().filter(|waits| *waits >= STUCK && writer.held.by().is_none() && !in_pipe)
    }

    fn outputs_of(&self, place: Place) -> usize {
        let live = self.containers.values().map(|child| &child.output);
        let all = live.chain(self.writers.orphans.values().map(|(_, output)| output));
        all.filter(|output| output.is_open() && output.place == place).count()
    }
}
