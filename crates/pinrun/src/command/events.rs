//! `events ID`: prints resource usage and OOM events as JSON, one object per line, in runc's format, which containerd
//! and Docker parse.

mod blkio;
mod pressure;
mod stats;

use std::{
    ffi::OsString,
    io::Write,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use cgroup::{Group, OomNotifications};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use crate::{
    arguments::Global,
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flags, Order, switch, value},
    state::Directory,
};

pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &[value(&["interval"]), switch(&["stats"])], Order::Mixed)?;
    let id = flags.id()?;
    let interval = interval(flags.text("interval")?.unwrap_or("5s"))?;
    let record = Directory::open(&global.root, id)?.load()?;
    let init = record.running_init()?;
    let group = record.group()?;
    print("stats", id, Some(stats::stats(&group)?))?;
    if flags.is_on("stats")? {
        return Ok(ExitCode::SUCCESS);
    }
    let notifications = group.oom_notifications()?;
    let mut watch =
        EventWatch { id, group: &group, init, notifications, reported_kills: group.oom_kills(), recheck_until: None };
    while watch.report_until(Instant::now() + interval)? {
        match stats::stats(&group) {
            Ok(now) => print("stats", id, Some(now))?,
            // The container was deleted in the meantime.
            Err(cgroup::Error::Missing { .. }) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// At which interval, and for how long after an early notice, the OOM kill count is read again: the chosen process may
/// take some time to be killed, or be spared because another process exits.
const RECHECK_INTERVAL: Duration = Duration::from_millis(10);
const RECHECK_TIME: Duration = Duration::from_secs(2);

/// Watches a container until it exits.
struct EventWatch<'a> {
    id: &'a str,
    group: &'a Group,
    init: OwnedFd,
    notifications: Option<OomNotifications>,
    /// OOM kills that were reported so far.
    reported_kills: u64,
    /// Until when the count is read again without another notice.
    recheck_until: Option<Instant>,
}

impl EventWatch<'_> {
    /// Reports each OOM kill until that time. Returns whether the container is still running.
    fn report_until(&mut self, until: Instant) -> Result<bool, Failure> {
        loop {
            let timeout = until.saturating_duration_since(Instant::now());
            let timeout = if self.recheck_until.is_some() { timeout.min(RECHECK_INTERVAL) } else { timeout };
            let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
            let mut fds = vec![PollFd::new(&self.init, PollFlags::IN)];
            fds.extend(self.notifications.iter().map(|notifications| PollFd::new(notifications, PollFlags::IN)));
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) if self.recheck_until.is_none() => return Ok(true),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(Failure::io("wait for the container's events", errno)),
            }
            let exited = !fds[0].revents().is_empty();
            if self
                .notifications
                .as_ref()
                .is_some_and(|notifications| notifications.clear() && notifications.are_early())
            {
                self.recheck_until = Some(Instant::now() + RECHECK_TIME);
            }
            self.report_oom_kills()?;
            if exited {
                return Ok(false);
            }
            let now = Instant::now();
            self.recheck_until = self.recheck_until.filter(|end| *end > now);
            if now >= until {
                return Ok(true);
            }
        }
    }

    fn report_oom_kills(&mut self) -> Result<(), Failure> {
        // The count of a removed cgroup is 0, which is less than before.
        let now = self.group.oom_kills();
        for _ in self.reported_kills..now {
            print("oom", self.id, None)?;
        }
        self.reported_kills = now.max(self.reported_kills);
        Ok(())
    }
}

/// Parses a duration in Go's format: `5s`, `500ms`, `1m`.
fn interval(text: &str) -> Result<Duration, Failure> {
    let wrong = || {
        Failure::usage(format!(
            "invalid value {text:?} for flag -interval: must be a positive duration such as 5s or 500ms"
        ))
    };
    let at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let number: f64 = text[..at].parse().map_err(|_| wrong())?;
    let seconds = match &text[at..] {
        "ms" => number / 1000.0,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).ok().filter(|duration| !duration.is_zero()).ok_or_else(wrong)
}

fn print(kind: &str, id: &str, data: Option<Value>) -> Result<(), Failure> {
    let mut event = json!({"type": kind, "id": id});
    if let Some(data) = data {
        event["data"] = data;
    }
    std::io::stdout().write_all(format!("{event}\n").as_bytes()).map_err(|error| Failure::io("print", error))
}
