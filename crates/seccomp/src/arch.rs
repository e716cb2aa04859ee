//! Architectures, and the numbers of system calls on each.

use crate::Error;

/// First number of what only ARM has, far above the numbers that all kernels give one after the other.
pub(crate) const ARM_OWN: u32 = 0xf_0000;

/// What x32 calls have set in their number.
pub(crate) const X32_BIT: u32 = 0x4000_0000;

/// An architecture whose calls can be told apart. The order is that of the columns in `syscalls.txt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Arch {
    X86_64,
    X86,
    X32,
    Aarch64,
    Arm,
}

impl Arch {
    /// What the kernel runs that this was compiled for.
    pub(crate) const NATIVE: Self = if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 };

    /// Architectures that a kernel of this one can run.
    pub(crate) const fn family(self) -> &'static [Self] {
        match self {
            Self::Aarch64 | Self::Arm => &[Self::Aarch64, Self::Arm],
            _ => &[Self::X86_64, Self::X86, Self::X32],
        }
    }

    /// `AUDIT_ARCH_*` (`linux/audit.h`).
    pub(crate) const fn audit(self) -> u32 {
        match self {
            Self::X86_64 | Self::X32 => 0xc000_003e,
            Self::X86 => 0x4000_0003,
            Self::Aarch64 => 0xc000_00b7,
            Self::Arm => 0x4000_0028,
        }
    }

    /// Whether arguments are compared in all 64 bits. x32 programs have longs and pointers of 32 bits, and libseccomp
    /// compares as much.
    pub(crate) const fn wide(self) -> bool {
        !matches!(self, Self::X86 | Self::X32 | Self::Arm)
    }

    /// The number of a call, as the filter sees it.
    pub(crate) fn number(self, call: Call) -> Option<u32> {
        let number = u32::try_from(ROWS[call.0].numbers[self as usize]).ok()?;
        Some(if self == Self::X32 { number | X32_BIT } else { number })
    }
}

/// A call that some architecture has: its row in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call(usize);

impl Call {
    /// By its name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut slot = hash(name) as usize % SLOT_COUNT;
        // Most of the slots are free, so the search ends.
        while let Some(row) = SLOTS[slot].checked_sub(1) {
            let row = usize::from(row);
            if ROWS[row].name == name {
                return Some(Self(row));
            }
            slot = (slot + 1) % SLOT_COUNT;
        }
        None
    }

    /// The call and its first argument by which i386 programs can reach this call too.
    pub(crate) fn multiplexed(self) -> Option<(Self, u32)> {
        let (through, argument) = ROWS[self.0].through?;
        Some((Self(usize::from(through)), argument))
    }

    /// Whether the lower half alone of the argument says which call it is: ipc(2) takes a version in the upper one.
    pub(crate) fn has_version(self) -> bool {
        self.0 == IPC
    }
}

/// The name of a system call, as the kernel tells of one that a filter logged or killed (audit record 1326): by its
/// `AUDIT_ARCH_*` and its number there. `None`: of another architecture, or newer than the table.
pub fn system_call_name(audit: u32, number: u32) -> Option<&'static str> {
    let families = [Arch::X86_64, Arch::X86, Arch::X32, Arch::Aarch64, Arch::Arm];
    let arch = families.into_iter().find(|arch| {
        let x32 = number & X32_BIT != 0;
        arch.audit() == audit && (*arch != Arch::X32 || x32) && (*arch != Arch::X86_64 || !x32)
    })?;
    (0..ROWS.len()).map(Call).find(|call| arch.number(*call) == Some(number)).map(|call| ROWS[call.0].name)
}

/// `None`: an architecture of the runtime spec that this one's kernel never runs.
pub(crate) fn parse(name: &str) -> Result<Option<Arch>, Error> {
    Ok(match name {
        "SCMP_ARCH_X86_64" => Some(Arch::X86_64),
        "SCMP_ARCH_X86" => Some(Arch::X86),
        "SCMP_ARCH_X32" => Some(Arch::X32),
        "SCMP_ARCH_AARCH64" => Some(Arch::Aarch64),
        "SCMP_ARCH_ARM" => Some(Arch::Arm),
        // No kernel that this program runs on ever runs a program of these, so no call of theirs reaches a filter.
        "SCMP_ARCH_MIPS"
        | "SCMP_ARCH_MIPS64"
        | "SCMP_ARCH_MIPS64N32"
        | "SCMP_ARCH_MIPSEL"
        | "SCMP_ARCH_MIPSEL64"
        | "SCMP_ARCH_MIPSEL64N32"
        | "SCMP_ARCH_PPC"
        | "SCMP_ARCH_PPC64"
        | "SCMP_ARCH_PPC64LE"
        | "SCMP_ARCH_RISCV64"
        | "SCMP_ARCH_S390"
        | "SCMP_ARCH_S390X"
        | "SCMP_ARCH_PARISC"
        | "SCMP_ARCH_PARISC64"
        | "SCMP_ARCH_LOONGARCH64"
        | "SCMP_ARCH_M68K"
        | "SCMP_ARCH_SH"
        | "SCMP_ARCH_SHEB" => None,
        other => {
            return Err(Error::Unknown {
                field: "architectures".into(),
                value: other.to_owned(),
                known: "SCMP_ARCH_X86_64, SCMP_ARCH_X86, SCMP_ARCH_X32, SCMP_ARCH_AARCH64, … of the runtime spec",
            });
        }
    })
}

/// Written by `generate-syscalls.sh`: sorted by name.
const SYSCALLS: &str = include_str!("syscalls.txt");

#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    /// By `Arch`; -1: it has none there.
    numbers: [i32; 5],
    /// Row of the call of many that is this one, too, and with which first argument.
    through: Option<(u16, u32)>,
}

/// Parsed by the compiler, so that a program that compiles one profile in its life does not pay for the table.
static ROWS: [Row; ROW_COUNT] = multiplex(rows());

/// By the hash of the name, or in the next slots: the row and 1; 0: none.
static SLOTS: [u16; SLOT_COUNT] = slots();

const SLOT_COUNT: usize = (ROW_COUNT * 2).next_power_of_two();

const IPC: usize = row_of(&ROWS, "ipc");

const ROW_COUNT: usize = {
    let (mut lines, mut at) = (0, 0);
    while at < SYSCALLS.len() {
        lines += (SYSCALLS.as_bytes()[at] == b'\n') as usize;
        at += 1;
    }
    lines
};

const fn rows() -> [Row; ROW_COUNT] {
    let text = SYSCALLS.as_bytes();
    let mut rows = [Row { name: "", numbers: [-1; 5], through: None }; ROW_COUNT];
    let (mut at, mut row) = (0, 0);
    while row < ROW_COUNT {
        let start = at;
        while text[at] != b' ' {
            at += 1;
        }
        rows[row].name = SYSCALLS.split_at(at).0.split_at(start).1;
        let mut column = 0;
        while column < 5 {
            // One space before each column.
            at += 1;
            if text[at] == b'-' {
                at += 1;
            } else {
                let mut number = 0;
                while text[at].is_ascii_digit() {
                    number = number * 10 + (text[at] - b'0') as i32;
                    at += 1;
                }
                rows[row].numbers[column] = number;
            }
            column += 1;
        }
        assert!(text[at] == b'\n');
        at += 1;
        row += 1;
    }
    rows
}

/// The names of all calls, for tests over the whole table.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

/// Sub-calls of socketcall(2), from 1 on.
const SOCKETCALL: [&str; 20] = [
    "socket",
    "bind",
    "connect",
    "listen",
    "accept",
    "getsockname",
    "getpeername",
    "socketpair",
    "send",
    "recv",
    "sendto",
    "recvfrom",
    "shutdown",
    "setsockopt",
    "getsockopt",
    "sendmsg",
    "recvmsg",
    "accept4",
    "recvmmsg",
    "sendmmsg",
];
/// Those of ipc(2).
const IPC_CALLS: [(&str, u32); 12] = [
    ("semop", 1),
    ("semget", 2),
    ("semctl", 3),
    ("semtimedop", 4),
    ("msgsnd", 11),
    ("msgrcv", 12),
    ("msgget", 13),
    ("msgctl", 14),
    ("shmat", 21),
    ("shmdt", 22),
    ("shmget", 23),
    ("shmctl", 24),
];

const fn multiplex(mut rows: [Row; ROW_COUNT]) -> [Row; ROW_COUNT] {
    let (socketcall, ipc) = (row_of(&rows, "socketcall") as u16, row_of(&rows, "ipc") as u16);
    let mut at = 0;
    while at < SOCKETCALL.len() {
        let row = row_of(&rows, SOCKETCALL[at]);
        rows[row].through = Some((socketcall, at as u32 + 1));
        at += 1;
    }
    at = 0;
    while at < IPC_CALLS.len() {
        let row = row_of(&rows, IPC_CALLS[at].0);
        rows[row].through = Some((ipc, IPC_CALLS[at].1));
        at += 1;
    }
    rows
}

const fn row_of(rows: &[Row; ROW_COUNT], name: &str) -> usize {
    let mut row = 0;
    while !equal(rows[row].name, name) {
        row += 1;
    }
    row
}

const fn equal(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

const fn slots() -> [u16; SLOT_COUNT] {
    let mut slots = [0; SLOT_COUNT];
    let mut row = 0;
    while row < ROW_COUNT {
        let mut slot = hash(ROWS[row].name) as usize % SLOT_COUNT;
        while slots[slot] != 0 {
            slot = (slot + 1) % SLOT_COUNT;
        }
        row += 1;
        slots[slot] = row as u16;
    }
    slots
}

/// FNV-1a, its upper half mixed in.
const fn hash(name: &str) -> u32 {
    let (mut hash, mut at) = (0x811c_9dc5_u32, 0);
    while at < name.len() {
        hash = (hash ^ name.as_bytes()[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash ^ hash >> 16
}
