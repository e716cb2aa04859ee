use crate::Error;

/// Most instructions the kernel takes (`BPF_MAXINSNS`).
pub(crate) const INSTRUCTIONS_MAX: usize = 4096;
/// Bytes of one instruction.
const INSTRUCTION: usize = 8;

/// `SECCOMP_FILTER_FLAG_LOG`.
pub(crate) const FLAG_LOG: u32 = 1 << 1;
/// `SECCOMP_FILTER_FLAG_SPEC_ALLOW`.
pub(crate) const FLAG_SPEC_ALLOW: u32 = 1 << 2;
/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
pub(crate) const FLAG_NEW_LISTENER: u32 = 1 << 3;
/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` (kernel 5.19+).
pub(crate) const FLAG_WAIT_KILLABLE_RECV: u32 = 1 << 5;
const FLAGS: u32 = FLAG_LOG | FLAG_SPEC_ALLOW | FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE_RECV;

/// A compiled filter: an array of `struct sock_filter`, and the flags to load it with by seccomp(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Instructions of eight bytes each, in the machine's byte order.
    pub filter: Vec<u8>,
    /// `SECCOMP_FILTER_FLAG_*`. With `NEW_LISTENER` (a rule says `SCMP_ACT_NOTIFY`) seccomp(2) gives the listener.
    pub flags: u32,
}

impl Program {
    /// How many instructions it has.
    pub fn instructions(&self) -> usize {
        self.filter.len() / INSTRUCTION
    }

    /// Bytes for a memfd: flags (u32, little-endian), then the filter.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.flags.to_le_bytes(), self.filter.as_slice()].concat()
    }

    /// Reads what [`Program::to_bytes`] wrote. Size and flags are checked; the instructions are checked by the kernel
    /// when they are loaded.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let (flags, filter) = bytes.split_first_chunk::<4>().ok_or(Error::Malformed("shorter than its flags"))?;
        let flags = u32::from_le_bytes(*flags);
        if flags & !FLAGS != 0 {
            return Err(Error::Malformed("it has unknown flags"));
        }
        if filter.is_empty() || filter.len() % INSTRUCTION != 0 {
            return Err(Error::Malformed("it is not made of whole instructions"));
        }
        if filter.len() / INSTRUCTION > INSTRUCTIONS_MAX {
            return Err(Error::TooLong(filter.len() / INSTRUCTION));
        }
        Ok(Self { filter: filter.to_vec(), flags })
    }
}
