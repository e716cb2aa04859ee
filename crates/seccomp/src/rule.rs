//! Parses the actions, conditions and flags of a profile.

use oci::{Seccomp, SeccompArg};

use crate::{
    Error,
    program::{FLAG_LOG, FLAG_NEW_LISTENER, FLAG_SPEC_ALLOW, FLAG_WAIT_KILLABLE_RECV},
};

/// EPERM, the errno of `SCMP_ACT_ERRNO` without a number.
const EPERM: u32 = 1;
/// The largest errno that the kernel returns to a program.
const ERRNO_MAX: u32 = 4095;

/// The return value of a filter: `SECCOMP_RET_*` with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Action(pub(crate) u32);

impl Action {
    pub(crate) const KILL_PROCESS: Self = Self(0x8000_0000);
    const KILL_THREAD: Self = Self(0);
    const TRAP: Self = Self(0x0003_0000);
    const ERRNO: u32 = 0x0005_0000;
    const NOTIFY: Self = Self(0x7fc0_0000);
    const TRACE: u32 = 0x7ff0_0000;
    const LOG: Self = Self(0x7ffc_0000);
    pub(crate) const ALLOW: Self = Self(0x7fff_0000);
    pub(crate) const ENOSYS: Self = Self(Self::ERRNO | libc::ENOSYS as u32);

    /// Parses an action and its errno. `fields` are their field names, for error messages.
    pub(crate) fn parse(fields: [&str; 2], name: &str, errno: Option<u32>) -> Result<Self, Error> {
        let data = |largest: u32| match errno.unwrap_or(EPERM) {
            n if n <= largest => Ok(n),
            n => Err(Error::Invalid { field: fields[1].into(), reason: format!("{n} is more than {largest}") }),
        };
        Ok(match name {
            "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => Self::KILL_THREAD,
            "SCMP_ACT_KILL_PROCESS" => Self::KILL_PROCESS,
            "SCMP_ACT_TRAP" => Self::TRAP,
            "SCMP_ACT_ERRNO" => Self(Self::ERRNO | data(ERRNO_MAX)?),
            "SCMP_ACT_TRACE" => Self(Self::TRACE | data(0xffff)?),
            "SCMP_ACT_LOG" => Self::LOG,
            "SCMP_ACT_ALLOW" => Self::ALLOW,
            "SCMP_ACT_NOTIFY" => Self::NOTIFY,
            other => {
                return Err(Error::Unknown {
                    field: fields[0].into(),
                    value: other.to_owned(),
                    known: "SCMP_ACT_ALLOW, SCMP_ACT_ERRNO, SCMP_ACT_KILL, SCMP_ACT_KILL_THREAD, SCMP_ACT_KILL_PROCESS, \
                            SCMP_ACT_TRAP, SCMP_ACT_TRACE, SCMP_ACT_LOG, SCMP_ACT_NOTIFY",
                });
            }
        })
    }

    pub(crate) fn is_notify(self) -> bool {
        self == Self::NOTIFY
    }

    /// Reports whether the kernel executes calls with this action. TRACE counts: it is up to the tracer to handle calls
    /// that it does not know.
    pub(crate) fn permits(self) -> bool {
        self == Self::ALLOW || self == Self::LOG || self.0 & 0xffff_0000 == Self::TRACE
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Ne,
    Lt,
    Le,
    Eq,
    Ge,
    Gt,
    MaskedEq,
}

/// A condition on one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Condition {
    pub(crate) index: u32,
    pub(crate) op: Op,
    /// The value with which the argument, or for `MaskedEq` the masked argument, is compared.
    pub(crate) value: u64,
    /// The mask of `MaskedEq`.
    pub(crate) mask: u64,
}

impl Condition {
    /// Parses a condition. `at` is its position in the rule, for error messages.
    pub(crate) fn parse(at: usize, arg: &SeccompArg) -> Result<Self, Error> {
        if arg.index > 5 {
            let reason = format!("{} is more than 5", arg.index);
            return Err(Error::Invalid { field: format!("args[{at}].index"), reason });
        }
        let op = match arg.op.as_str() {
            "SCMP_CMP_NE" => Op::Ne,
            "SCMP_CMP_LT" => Op::Lt,
            "SCMP_CMP_LE" => Op::Le,
            "SCMP_CMP_EQ" => Op::Eq,
            "SCMP_CMP_GE" => Op::Ge,
            "SCMP_CMP_GT" => Op::Gt,
            "SCMP_CMP_MASKED_EQ" => Op::MaskedEq,
            other => {
                return Err(Error::Unknown {
                    field: format!("args[{at}].op"),
                    value: other.to_owned(),
                    known: "SCMP_CMP_EQ, SCMP_CMP_NE, SCMP_CMP_LT, SCMP_CMP_LE, SCMP_CMP_GT, SCMP_CMP_GE, SCMP_CMP_MASKED_EQ",
                });
            }
        };
        let (value, mask) = if op == Op::MaskedEq { (arg.value_two, arg.value) } else { (arg.value, u64::MAX) };
        Ok(Self { index: arg.index, op, value, mask })
    }
}

/// Parses the flags. Without the property they are `SPEC_ALLOW`, as in runc; an empty list means no flags.
/// `TSYNC` has no effect in a single-threaded process.
pub(crate) fn flags(profile: &Seccomp) -> Result<u32, Error> {
    let Some(named) = &profile.flags else { return Ok(FLAG_SPEC_ALLOW) };
    let mut flags = 0;
    for flag in named {
        flags |= match flag.as_str() {
            "SECCOMP_FILTER_FLAG_TSYNC" => 0,
            "SECCOMP_FILTER_FLAG_LOG" => FLAG_LOG,
            "SECCOMP_FILTER_FLAG_SPEC_ALLOW" => FLAG_SPEC_ALLOW,
            "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV" => FLAG_WAIT_KILLABLE_RECV,
            other => {
                return Err(Error::Unknown {
                    field: "flags".into(),
                    value: other.to_owned(),
                    known: "SECCOMP_FILTER_FLAG_TSYNC, SECCOMP_FILTER_FLAG_LOG, SECCOMP_FILTER_FLAG_SPEC_ALLOW, \
                            SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV",
                });
            }
        };
    }
    Ok(flags)
}

/// Adds the flag that a filter with notifications needs. The kernel allows `WAIT_KILLABLE_RECV` only with it.
pub(crate) fn notify_flags(flags: u32, notifies: bool) -> Result<u32, Error> {
    if notifies {
        return Ok(flags | FLAG_NEW_LISTENER);
    }
    if flags & FLAG_WAIT_KILLABLE_RECV != 0 {
        let reason = "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV needs a rule with SCMP_ACT_NOTIFY".to_owned();
        return Err(Error::Invalid { field: "flags".into(), reason });
    }
    Ok(flags)
}
