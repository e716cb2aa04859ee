//! Architectures and their system call numbers.

use crate::Error;

/// The first number of ARM-private calls, far above the regular numbers.
pub(crate) const ARM_PRIVATE: u32 = 0xf_0000;

/// The bit that is set in the numbers of x32 calls (`__X32_SYSCALL_BIT`).
pub(crate) const X32_BIT: u32 = 0x4000_0000;

/// A supported architecture. The order is that of the columns in `syscalls.txt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Arch {
    X86_64,
    X86,
    X32,
    Aarch64,
    Arm,
}

impl Arch {
    /// The architecture for which this crate is compiled.
    pub(crate) const NATIVE: Self = if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 };

    /// Returns the architectures whose programs a kernel of this architecture can run.
    pub(crate) const fn family(self) -> &'static [Self] {
        match self {
            Self::Aarch64 | Self::Arm => &[Self::Aarch64, Self::Arm],
            _ => &[Self::X86_64, Self::X86, Self::X32],
        }
    }

    /// Returns the `AUDIT_ARCH_*` value (`linux/audit.h`).
    pub(crate) const fn audit(self) -> u32 {
        match self {
            Self::X86_64 | Self::X32 => 0xc000_003e,
            Self::X86 => 0x4000_0003,
            Self::Aarch64 => 0xc000_00b7,
            Self::Arm => 0x4000_0028,
        }
    }

    /// Reports whether arguments are compared in all 64 bits. x32 programs have 32-bit longs and pointers, and
    /// libseccomp compares 32 bits, too.
    pub(crate) const fn has_wide_arguments(self) -> bool {
        !matches!(self, Self::X86 | Self::X32 | Self::Arm)
    }

    /// Returns the number of a call as in `struct seccomp_data`.
    pub(crate) fn number(self, call: Call) -> Option<u32> {
        let number = u32::try_from(ROWS[call.0].numbers[self as usize]).ok()?;
        Some(if self == Self::X32 { number | X32_BIT } else { number })
    }
}

/// A system call of any architecture: its row in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call(usize);

impl Call {
    /// Looks up a call by its name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let mut slot = hash(name) as usize % SLOT_COUNT;
        // At least half of the slots are free, so the search terminates.
        while let Some(row) = SLOTS[slot].checked_sub(1) {
            let row = usize::from(row);
            if ROWS[row].name == name {
                return Some(Self(row));
            }
            slot = (slot + 1) % SLOT_COUNT;
        }
        None
    }

    /// Returns the multiplexing call, and its first argument, by which i386 programs can make this call, too.
    pub(crate) fn multiplexed(self) -> Option<(Self, u32)> {
        let (multiplexer, argument) = ROWS[self.0].multiplexer?;
        Some((Self(usize::from(multiplexer)), argument))
    }

    /// Reports whether only the lower 16 bits of the argument select the call: ipc(2) has a version in the upper ones.
    pub(crate) fn has_version(self) -> bool {
        self.0 == IPC
    }
}

/// Returns the name of a system call from its `AUDIT_ARCH_*` value and number, which are in the audit record (type
/// 1326) of a call that a filter logged or killed. `None` for another architecture, or for a call newer than the table.
pub fn system_call_name(audit: u32, number: u32) -> Option<&'static str> {
    let families = [Arch::X86_64, Arch::X86, Arch::X32, Arch::Aarch64, Arch::Arm];
    let arch = families.into_iter().find(|arch| {
        let x32 = number & X32_BIT != 0;
        arch.audit() == audit && (*arch != Arch::X32 || x32) && (*arch != Arch::X86_64 || !x32)
    })?;
    (0..ROWS.len()).map(Call).find(|call| arch.number(*call) == Some(number)).map(|call| ROWS[call.0].name)
}

/// Parses the name of an architecture. Returns `None` for one of the runtime spec whose programs are never run here.
pub(crate) fn parse(name: &str) -> Result<Option<Arch>, Error> {
    Ok(match name {
        "SCMP_ARCH_X86_64" => Some(Arch::X86_64),
        "SCMP_ARCH_X86" => Some(Arch::X86),
        "SCMP_ARCH_X32" => Some(Arch::X32),
        "SCMP_ARCH_AARCH64" => Some(Arch::Aarch64),
        "SCMP_ARCH_ARM" => Some(Arch::Arm),
        // No kernel that can run this program runs programs of these architectures, so a filter never sees their calls.
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

/// The table of system calls, generated by `generate-syscalls.sh` and sorted by name.
const SYSCALLS: &str = include_str!("syscalls.txt");

#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    /// The numbers by `Arch`; -1 if the architecture does not have the call.
    numbers: [i32; 5],
    /// The row of the multiplexing call that includes this call, and its first argument.
    multiplexer: Option<(u16, u32)>,
}

/// The parsed table. It is evaluated at compile time, so that a process that compiles only one profile does not parse
/// it.
static ROWS: [Row; ROW_COUNT] = multiplex(rows());

/// An open-addressing hash table of names: a slot contains the row plus 1, or 0 if it is free.
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
    let mut rows = [Row { name: "", numbers: [-1; 5], multiplexer: None }; ROW_COUNT];
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

/// Returns the names of all calls.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

/// The calls of socketcall(2), numbered from 1.
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
/// The calls of ipc(2) and their numbers.
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
        rows[row].multiplexer = Some((socketcall, at as u32 + 1));
        at += 1;
    }
    at = 0;
    while at < IPC_CALLS.len() {
        let row = row_of(&rows, IPC_CALLS[at].0);
        rows[row].multiplexer = Some((ipc, IPC_CALLS[at].1));
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

/// FNV-1a, with the upper half mixed into the lower one.
const fn hash(name: &str) -> u32 {
    let (mut hash, mut at) = (0x811c_9dc5_u32, 0);
    while at < name.len() {
        hash = (hash ^ name.as_bytes()[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash ^ hash >> 16
}
