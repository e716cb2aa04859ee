use crate::Error;

/// The maximum number of instructions (`BPF_MAXINSNS`).
pub(crate) const INSTRUCTIONS_MAX: usize = 4096;
/// The size of one instruction in bytes.
const INSTRUCTION: usize = 8;

/// `SECCOMP_FILTER_FLAG_LOG`.
pub(crate) const FLAG_LOG: u32 = 1 << 1;
/// `SECCOMP_FILTER_FLAG_SPEC_ALLOW`.
pub(crate) const FLAG_SPEC_ALLOW: u32 = 1 << 2;
/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
pub(crate) const FLAG_NEW_LISTENER: u32 = 1 << 3;
/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` (Linux 5.19).
pub(crate) const FLAG_WAIT_KILLABLE_RECV: u32 = 1 << 5;
const FLAGS: u32 = FLAG_LOG | FLAG_SPEC_ALLOW | FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE_RECV;

/// A compiled filter: an array of `struct sock_filter`, and the flags for seccomp(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Instructions of eight bytes each, in the machine's byte order.
    pub filter: Vec<u8>,
    /// `SECCOMP_FILTER_FLAG_*`. With `NEW_LISTENER` (a rule has `SCMP_ACT_NOTIFY`) seccomp(2) returns the listener.
    pub flags: u32,
}

impl Program {
    /// Returns the number of instructions.
    pub fn instructions(&self) -> usize {
        self.filter.len() / INSTRUCTION
    }

    /// Encodes the program for a memfd: flags (u32, little-endian), then the filter.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.flags.to_le_bytes(), self.filter.as_slice()].concat()
    }

    /// Decodes the result of [`Program::to_bytes`]. Checks size and flags; the kernel checks the instructions when it
    /// loads them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let (flags, filter) = bytes.split_first_chunk::<4>().ok_or(Error::Malformed("shorter than its flags"))?;
        let flags = u32::from_le_bytes(*flags);
        if flags & !FLAGS != 0 {
            return Err(Error::Malformed("unknown flags"));
        }
        if filter.is_empty() || filter.len() % INSTRUCTION != 0 {
            return Err(Error::Malformed("the size is not a multiple of the instruction size"));
        }
        if filter.len() / INSTRUCTION > INSTRUCTIONS_MAX {
            return Err(Error::TooLong(filter.len() / INSTRUCTION));
        }
        Ok(Self { filter: filter.to_vec(), flags })
    }
}
