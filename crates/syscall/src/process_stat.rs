//! Parses `/proc/PID/stat`, see proc_pid_stat(5).

use std::{io, str};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    process::Pid,
};

/// Size of the buffer in bytes. The file has 52 numbers of at most 20 digits and a name of at most 64 bytes, and the
/// kernel returns it with one read.
const BUFFER: usize = 2048;
/// `PF_EXITING` of `flags`.
const EXITING: u64 = 0x4;
/// `PF_FORKNOEXEC` of `flags`.
const FORK_NO_EXEC: u64 = 0x40;

/// The fields of `/proc/PID/stat` that this project uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Field 3: `b'R'`, `b'S'`, `b'D'`, `b'Z'`, …
    pub state: u8,
    /// Field 4: the pid of the parent; 0 if it is not in the reader's PID namespace.
    pub parent: i32,
    /// Field 6: the id of the session; 0 if it is not in the reader's PID namespace, as for threads of the kernel.
    pub session: i32,
    /// Field 9: the `PF_` flags of the kernel's `linux/sched.h`.
    pub flags: u64,
    /// Field 14: time in user mode in clock ticks.
    pub user_ticks: u64,
    /// Field 15: time in kernel mode in clock ticks.
    pub system_ticks: u64,
    /// Fields 16 and 17: time of reaped children in clock ticks.
    pub children_ticks: u64,
    /// Field 20: number of threads.
    pub threads: u64,
    /// Field 22: time of the start in clock ticks since boot. Pid and start time identify a process.
    pub start_time: u64,
    /// Field 23: size of the address space in bytes.
    pub virtual_bytes: u64,
    /// Field 24: number of resident pages.
    pub resident_pages: u64,
    /// Field 52: exit status as of waitpid(2). Present since Linux 3.5; 0 for readers that may not trace the process.
    pub exit_status: Option<i32>,
}

impl ProcessStat {
    /// Reads the fields of a process, with one read.
    ///
    /// # Errors
    /// `ENOENT` or `ESRCH` if the process does not exist; `InvalidData` if the file is malformed.
    pub fn read(pid: Pid) -> io::Result<Self> {
        let file = openat(CWD, &*format!("/proc/{pid}/stat"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut buffer = [0; BUFFER];
        let length = loop {
            match rustix::io::read(&file, &mut buffer) {
                Err(Errno::INTR) => {}
                result => break result?,
            }
        };
        Self::parse(&buffer[..length]).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat is not as in proc_pid_stat(5)"))
        })
    }

    /// Parses the content of the file. Returns `None` if a field up to `resident_pages` is missing or not a number.
    pub fn parse(stat: &[u8]) -> Option<Self> {
        // Field 2, the name, is in parentheses and may contain any bytes, so fields are counted from the last one.
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let mut fields = str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace();
        // Returns the `after`th field after the one that was read last.
        let mut skip = |after: usize| fields.nth(after - 1);
        let state = *skip(1)?.as_bytes().first()?;
        let parent = skip(1)?.parse().ok()?;
        let session = skip(6 - 4)?.parse().ok()?;
        let flags = skip(9 - 6)?.parse().ok()?;
        let mut number = |after: usize| skip(after)?.parse::<u64>().ok();
        let (user_ticks, system_ticks) = (number(14 - 9)?, number(1)?);
        let children_ticks = number(1)?.saturating_add(number(1)?);
        let threads = number(20 - 17)?;
        let start_time = number(22 - 20)?;
        let (virtual_bytes, resident_pages) = (number(1)?, number(1)?);
        let exit_status = skip(52 - 24).and_then(|status| status.parse().ok());
        Some(Self {
            state,
            parent,
            session,
            flags,
            user_ticks,
            system_ticks,
            children_ticks,
            threads,
            start_time,
            virtual_bytes,
            resident_pages,
            exit_status,
        })
    }

    /// Reports whether the process is a zombie: exited, but not reaped.
    pub fn is_zombie(&self) -> bool {
        self.state == b'Z'
    }

    /// Reports whether the process is in uninterruptible sleep.
    pub fn is_uninterruptible(&self) -> bool {
        self.state == b'D'
    }

    /// Reports whether the process has begun to exit. The init of a PID namespace ends all other processes of it before
    /// it becomes a zombie.
    pub fn is_exiting(&self) -> bool {
        self.flags & EXITING != 0
    }

    /// Reports whether the process has executed a program since it was cloned.
    pub fn has_executed(&self) -> bool {
        self.flags & FORK_NO_EXEC == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &str = "S 7 12 12 0 -1 4194368 1 2 3 4 150 50 30 20 20 0 9 0 3000 8192 3 18446744073709551615 \
                          1 1 0 0 0 0 0 4096 81920 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 256\n";

    fn parse(name: &[u8], fields: &str) -> Option<ProcessStat> {
        ProcessStat::parse(&[b"12 (", name, b") ", fields.as_bytes()].concat())
    }

    #[test]
    fn fields_have_the_numbers_of_the_manual_page() {
        let expected = ProcessStat {
            state: b'S',
            parent: 7,
            session: 12,
            flags: 4_194_368,
            user_ticks: 150,
            system_ticks: 50,
            children_ticks: 50,
            threads: 9,
            start_time: 3000,
            virtual_bytes: 8192,
            resident_pages: 3,
            exit_status: Some(256),
        };
        assert_eq!(parse(b"x", FIELDS), Some(expected));
        assert!(!expected.has_executed() && !expected.is_exiting() && !expected.is_zombie());
    }

    #[test]
    fn a_name_may_have_any_bytes() {
        let expected = parse(b"x", FIELDS);
        for name in [&b""[..], b" ", b")", b"a) Z 9 9 (b", b"(", b"\n", b") R 1\n2 3", b"\xff\xfe\x00", b"%d)"] {
            assert_eq!(parse(name, FIELDS), expected, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn incomplete_text_is_refused() {
        for text in ["", "12", "12 (x", "12 (x)", "12 (x) ", "12 (x) S", "12 (x) S 1", "12 (x) S a b c"] {
            assert_eq!(ProcessStat::parse(text.as_bytes()), None, "{text:?}");
        }
        let fields: Vec<&str> = FIELDS.split_whitespace().collect();
        assert_eq!(parse(b"x", &fields[..21].join(" ")), None);
        let old = parse(b"x", &fields[..22].join(" ")).expect("the fields up to 24");
        assert_eq!((old.resident_pages, old.exit_status), (3, None));
        assert_eq!(parse(b"x", &FIELDS.replace("3000", "-1")), None);
    }

    #[test]
    fn this_process_can_be_read() {
        let stat = ProcessStat::read(rustix::process::getpid()).expect("this process");
        assert_eq!(stat.parent, Pid::as_raw(rustix::process::getppid()));
        assert!(stat.has_executed() && !stat.is_zombie() && !stat.is_exiting() && !stat.is_uninterruptible());
        assert!(stat.threads > 0 && stat.start_time > 0 && stat.resident_pages > 0 && stat.virtual_bytes > 0);
        let absent = Pid::from_raw(i32::MAX).expect("not zero");
        assert_eq!(ProcessStat::read(absent).expect_err("no such process").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_zombie_has_its_exit_status() {
        let mut child = std::process::Command::new("/bin/sh").args(["-c", "exit 3"]).spawn().expect("spawn");
        let pid = Pid::from_child(&child);
        let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), options).expect("exit");
        let stat = ProcessStat::read(pid).expect("a zombie");
        assert!(stat.is_zombie() && stat.is_exiting());
        assert_eq!(stat.exit_status, Some(3 << 8));
        child.wait().expect("reap");
    }
}
