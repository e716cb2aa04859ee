use std::{fmt, fs};

use system_tests::{Node, Process};

/// Daemon and monitor, and what they used when the campaign began.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    daemon: Watched,
    monitor: Watched,
}

#[derive(Clone, Debug)]
struct Watched {
    process: Process,
    started: Option<String>,
    first: Usage,
    most: Usage,
}

/// What a process uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Resident set size in KiB.
    pub(crate) rss: u64,
    /// Proportional set size in KiB.
    pub(crate) pss: u64,
    /// Open descriptors.
    pub(crate) descriptors: usize,
}

impl Programs {
    /// Daemon and monitor of a quiet node.
    pub(crate) fn of(node: &Node) -> Self {
        Self { daemon: Watched::new(node.process("pinion")), monitor: Watched::new(node.process("pinmon")) }
    }

    /// Measures both; an error if one of them is not the process that it was at the beginning.
    ///
    /// # Errors
    /// The name of the program that died.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        self.daemon.check().and(self.monitor.check())
    }

    /// An error if one of them grew by more than so many KiB since the beginning.
    ///
    /// # Errors
    /// The name of the program and its memory.
    pub(crate) fn check_memory(&self, most_kib: u64) -> Result<(), String> {
        for watched in [&self.daemon, &self.monitor] {
            let now = watched.usage();
            if now.rss > watched.first.rss + most_kib || now.pss > watched.first.pss + most_kib {
                return Err(format!("{} grew from {} to {now}", watched.process.name, watched.first));
            }
        }
        Ok(())
    }
}

impl Watched {
    fn new(process: Process) -> Self {
        let mut watched = Self { started: None, first: Usage::default(), most: Usage::default(), process };
        watched.started = watched.start_time();
        watched.first = watched.usage();
        watched
    }

    /// Field 22 of proc_pid_stat(5): it distinguishes a process from another with the same pid.
    fn start_time(&self) -> Option<String> {
        let stat = fs::read_to_string(self.process.directory.join("stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
    }

    fn usage(&self) -> Usage {
        let status = fs::read_to_string(self.process.directory.join("status")).unwrap_or_default();
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        Usage {
            rss: rss.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0),
            pss: self.process.pss_kib(),
            descriptors: fs::read_dir(self.process.directory.join("fd")).map_or(0, Iterator::count),
        }
    }

    fn check(&mut self) -> Result<(), String> {
        let usage = self.usage();
        if self.start_time() != self.started || usage.rss == 0 {
            return Err(format!("{} (pid {}) died", self.process.name, self.process.pid));
        }
        self.most.rss = self.most.rss.max(usage.rss);
        self.most.pss = self.most.pss.max(usage.pss);
        self.most.descriptors = self.most.descriptors.max(usage.descriptors);
        Ok(())
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |kib: u64| kib as f64 / 1024.0;
        write!(f, "RSS {:.1} PSS {:.1} MiB, {} descriptors", mib(self.rss), mib(self.pss), self.descriptors)
    }
}

impl fmt::Display for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for watched in [&self.daemon, &self.monitor] {
            let (first, most, now) = (watched.first, watched.most, watched.usage());
            writeln!(f, "{:>7}: {first}; at most {most}; now {now}", watched.process.name)?;
        }
        Ok(())
    }
}
