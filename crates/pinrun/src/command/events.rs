//! `events ID`: use of resources, and OOM events, one JSON object a line, as containerd and Docker read runc's.

mod blkio;
mod pressure;
mod stats;

use std::{
    ffi::OsString,
    io::Write,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use cgroup::{Group, OomNotices};
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
    let init = record.running()?;
    let group = record.group()?;
    print("stats", id, Some(stats::stats(&group)?))?;
    if flags.is_on("stats")? {
        return Ok(ExitCode::SUCCESS);
    }
    let notices = group.oom_notices()?;
    let mut watched = Watched { id, group: &group, init, notices, kills: group.oom_kills(), again: None };
    while watched.go_on(Instant::now() + interval)? {
        match stats::stats(&group) {
            Ok(now) => print("stats", id, Some(now))?,
            // Deleted just now.
            Err(cgroup::Error::Missing { .. }) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How often, and how long after an early notice, the count is looked at: the process that is chosen may take a moment
/// to be killed, or be spared for one that ends anyway.
const COUNT_PAUSE: Duration = Duration::from_millis(10);
const COUNT_TIME: Duration = Duration::from_secs(2);

/// A container until its end.
struct Watched<'a> {
    id: &'a str,
    group: &'a Group,
    init: OwnedFd,
    notices: Option<OomNotices>,
    /// Told so far.
    kills: u64,
    /// Until when the count is looked at again without another notice.
    again: Option<Instant>,
}

impl Watched<'_> {
    /// Tells of each OOM until that time; whether the container still runs.
    fn go_on(&mut self, until: Instant) -> Result<bool, Failure> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = if self.again.is_some() { left.min(COUNT_PAUSE) } else { left };
            let time = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let mut fds = vec![PollFd::new(&self.init, PollFlags::IN)];
            fds.extend(self.notices.iter().map(|notices| PollFd::new(notices, PollFlags::IN)));
            match poll(&mut fds, Some(&time)) {
                Ok(0) if self.again.is_none() => return Ok(true),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(Failure::io("wait for the container's events", errno)),
            }
            let ended = !fds[0].revents().is_empty();
            if self.notices.as_ref().is_some_and(|notices| notices.clear() && notices.are_early()) {
                self.again = Some(Instant::now() + COUNT_TIME);
            }
            self.tell_oom()?;
            if ended {
                return Ok(false);
            }
            let now = Instant::now();
            self.again = self.again.filter(|again| *again > now);
            if now >= until {
                return Ok(true);
            }
        }
    }

    fn tell_oom(&mut self) -> Result<(), Failure> {
        // Of a group that is gone there are none: fewer than before.
        let now = self.group.oom_kills();
        for _ in self.kills..now {
            print("oom", self.id, None)?;
        }
        self.kills = now.max(self.kills);
        Ok(())
    }
}

/// As Go writes durations: `5s`, `500ms`, `1m`.
fn interval(text: &str) -> Result<Duration, Failure> {
    let wrong =
        || Failure::usage(format!("invalid value {text:?} for flag -interval: as 5s or 500ms, and more than 0"));
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
