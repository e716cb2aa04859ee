use std::{
    fmt, fs,
    time::{Duration, Instant},
};

use system_tests::{Node, Process};

/// Time after which the daemon has returned to the kernel what it freed: once a minute, and the release itself.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(75);

/// The daemon and the monitor, with their resource usage since the campaign started.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    daemon: WatchedProcess,
    monitor: WatchedProcess,
}

#[derive(Clone, Debug)]
struct WatchedProcess {
    process: Process,
    start_time: Option<String>,
    first: Usage,
    max: Usage,
}

/// The resource usage of a process.
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
    /// Returns the daemon and the monitor of an idle node.
    pub(crate) fn of(node: &Node) -> Self {
        Self {
            daemon: WatchedProcess::new(node.process("pinion")),
            monitor: WatchedProcess::new(node.process("pinmon")),
        }
    }

    /// Measures both programs.
    ///
    /// # Errors
    /// The name of a program whose process has exited since the start.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        self.daemon.check().and(self.monitor.check())
    }

    /// Checks that neither program has grown by more than `growth_kib` since the start, once the daemon has returned
    /// to the kernel what it freed, which it does every minute.
    ///
    /// # Errors
    /// The name of a program that has grown more, and its memory.
    pub(crate) async fn check_memory(&self, growth_kib: u64) -> Result<(), String> {
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        while self.growth(growth_kib).is_err() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.growth(growth_kib)
    }

    fn growth(&self, maximum_kib: u64) -> Result<(), String> {
        for program in [&self.daemon, &self.monitor] {
            let now = program.usage();
            if now.rss > program.first.rss + maximum_kib || now.pss > program.first.pss + maximum_kib {
                return Err(format!("{} grew from {} to {now}", program.process.name, program.first));
            }
        }
        Ok(())
    }
}

impl WatchedProcess {
    fn new(process: Process) -> Self {
        let mut program = Self { start_time: None, first: Usage::default(), max: Usage::default(), process };
        program.start_time = program.read_start_time();
        program.first = program.usage();
        program
    }

    /// Reads field 22 of proc_pid_stat(5), which distinguishes a process from a later one with the same pid.
    fn read_start_time(&self) -> Option<String> {
        let stat = fs::read_to_string(self.process.directory.join("stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
    }

    fn usage(&self) -> Usage {
        let memory = self.process.memory();
        Usage {
            rss: memory.map_or(0, |memory| memory.resident),
            pss: memory.map_or(0, |memory| memory.proportional),
            descriptors: fs::read_dir(self.process.directory.join("fd")).map_or(0, Iterator::count),
        }
    }

    fn check(&mut self) -> Result<(), String> {
        let usage = self.usage();
        if self.read_start_time() != self.start_time || usage.rss == 0 {
            return Err(format!("{} (pid {}) exited", self.process.name, self.process.pid));
        }
        self.max.rss = self.max.rss.max(usage.rss);
        self.max.pss = self.max.pss.max(usage.pss);
        self.max.descriptors = self.max.descriptors.max(usage.descriptors);
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
        for program in [&self.daemon, &self.monitor] {
            let (first, max, now) = (program.first, program.max, program.usage());
            writeln!(f, "{:>7}: {first}; maximum {max}; now {now}", program.process.name)?;
        }
        Ok(())
    }
}
