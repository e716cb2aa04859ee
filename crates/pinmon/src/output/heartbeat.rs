//! State of log writers for the heartbeat.

use std::{collections::BTreeMap, time::Duration};

use monitor_api::{LogDevice, Pong, StuckWriter};
use rustix::fs::{major, minor};

use super::{
    Outputs,
    blocked::COMMON,
    streams::Place,
    writer::{STUCK, Writer},
};

/// State of one file system: duration and writer of the longest step, and the number of waiting containers.
#[derive(Default)]
struct Stuck {
    step_duration: Duration,
    pid: u32,
    containers: usize,
}

impl Outputs {
    /// Returns the file systems that log writers wait for.
    pub(crate) fn pong(&self) -> Pong {
        let mut devices: BTreeMap<Option<u64>, Stuck> = BTreeMap::new();
        for (place, writer) in &self.writers.list {
            let Some(step_duration) = self.waits_for_files(*place, writer) else { continue };
            let device = devices.entry(place.device).or_default();
            device.containers += self.open_outputs_of(*place);
            if step_duration >= device.step_duration {
                (device.step_duration, device.pid) = (step_duration, writer.pid.unsigned_abs());
            }
        }
        let report = |(device, stuck): (Option<u64>, Stuck)| StuckWriter {
            device: device.map(|device| LogDevice { major: major(device), minor: minor(device) }),
            since_ms: u64::try_from(stuck.step_duration.as_millis()).unwrap_or(u64::MAX),
            containers: u32::try_from(stuck.containers).unwrap_or(u32::MAX),
            pid: stuck.pid,
        };
        Pong { stuck: devices.into_iter().map(report).collect() }
    }

    /// Returns the duration of a step that hangs in a file system. A writer in a pipe of a container, or waiting for
    /// one that is, does not wait for a file system.
    fn waits_for_files(&self, place: Place, writer: &Writer) -> Option<Duration> {
        let stuck_writers = &self.writers.stuck_writers;
        let in_pipe = match place.dedicated {
            Some(COMMON) => !stuck_writers.is_empty(),
            dedicated => stuck_writers.iter().any(|(_, serial)| dedicated == Some(*serial)),
        };
        writer
            .step_duration()
            .filter(|step_duration| *step_duration >= STUCK && writer.pipe_marker.current().is_none() && !in_pipe)
    }

    fn open_outputs_of(&self, place: Place) -> usize {
        self.map.iter().filter(|(_, output)| output.is_open() && output.place == place).count()
    }
}
