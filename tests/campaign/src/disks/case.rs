use std::fmt;

/// The role of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It contains the log directories of some pods.
    Log,
    /// It is the `data_dir` of the daemon.
    Data,
    /// It is the `state_dir` of the daemon, a tmpfs.
    State,
    /// It is a volume of some pods.
    Volume,
}

/// The kind of the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// No write starts (fsfreeze(8)).
    Frozen,
    /// Writes start in the file system, but none completes on the device below.
    Stalled,
    /// A write takes up to 100 ms.
    Slow,
    /// The disk is full.
    Full,
    /// The file system became read-only because of an error.
    ReadOnly,
    /// The disk loses acknowledged writes.
    Lost,
}

/// A disk fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) role: Role,
    pub(super) kind: Kind,
}

/// All cases. A tmpfs can neither be frozen nor become read-only while files are open (EOPNOTSUPP, EBUSY). Losing or
/// reordering single writes requires another kind of device, and is covered by the power-cuts campaign.
pub(super) const CASES: [Case; 17] = {
    use Kind::{Frozen, Full, Lost, ReadOnly, Slow, Stalled};
    use Role::{Data, Log, State, Volume};
    const fn case(role: Role, kind: Kind) -> Case {
        Case { role, kind }
    }
    [
        case(Log, Frozen),
        case(Log, Stalled),
        case(Log, Slow),
        case(Log, Full),
        case(Log, ReadOnly),
        case(Data, Frozen),
        case(Data, Stalled),
        case(Data, Slow),
        case(Data, Full),
        case(Data, ReadOnly),
        case(Data, Lost),
        case(State, Full),
        case(Volume, Frozen),
        case(Volume, Stalled),
        case(Volume, Slow),
        case(Volume, Full),
        case(Volume, ReadOnly),
    ]
};

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            Role::Log => "log",
            Role::Data => "data",
            Role::State => "state",
            Role::Volume => "volume",
        };
        let kind = match self.kind {
            Kind::Frozen => "frozen",
            Kind::Stalled => "stalled",
            Kind::Slow => "slow",
            Kind::Full => "full",
            Kind::ReadOnly => "read-only",
            Kind::Lost => "lost",
        };
        f.pad(&format!("{role}-{kind}"))
    }
}

impl Case {
    /// Whether pods that do not use the disk can be created while it is faulty.
    pub(super) fn lets_others_start(self) -> bool {
        matches!(self.role, Role::Log | Role::Volume) || self.kind == Kind::Slow
    }

    /// Whether output may be dropped, which requires a notice in the log.
    pub(super) fn may_drop_output(self) -> bool {
        self.role == Role::Log && matches!(self.kind, Kind::Full | Kind::ReadOnly)
    }

    /// Whether no output is read while the disk is faulty, so that a container that prints blocks in write(2).
    pub(super) fn blocks_output(self) -> bool {
        self.role == Role::Log && matches!(self.kind, Kind::Frozen | Kind::Stalled)
    }

    /// Whether the fault ends only with a new mount, before which every pod must be removed.
    pub(super) fn needs_new_mount(self) -> bool {
        matches!(self.kind, Kind::ReadOnly | Kind::Lost)
    }
}
