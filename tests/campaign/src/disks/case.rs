use std::fmt;

/// What the disk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Holds log directories of some pods.
    Log,
    /// Is the daemon's `data_dir`.
    Data,
    /// Is the daemon's `state_dir`, a tmpfs.
    State,
    /// Is a volume of some pods.
    Volume,
}

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// No write begins (fsfreeze(8)).
    Frozen,
    /// Writes begin in the file system, and none completes on the device below.
    Stalled,
    /// A write takes up to 100 ms.
    Slow,
    /// The disk is full.
    Full,
    /// It became read-only because of an error.
    ReadOnly,
    /// It forgets writes that it had confirmed.
    Lost,
}

/// One fault of one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) role: Role,
    pub(super) kind: Kind,
}

/// Every case. A tmpfs can neither be frozen nor become read-only under open files (EOPNOTSUPP, EBUSY). Single writes
/// that are lost or reordered need device mapper: they are the campaign of power cuts.
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
    /// Whether pods that do not use the disk can be made while it is faulty.
    pub(super) fn lets_others_start(self) -> bool {
        matches!(self.role, Role::Log | Role::Volume) || self.kind == Kind::Slow
    }

    /// Whether output may be dropped, which the log must say.
    pub(super) fn may_drop_output(self) -> bool {
        self.role == Role::Log && matches!(self.kind, Kind::Full | Kind::ReadOnly)
    }

    /// Whether nothing of the output is read while the fault lasts: a container that prints waits in write(2).
    pub(super) fn holds_output(self) -> bool {
        self.role == Role::Log && matches!(self.kind, Kind::Frozen | Kind::Stalled)
    }

    /// Whether a new mount ends the fault, before which every pod must be removed.
    pub(super) fn needs_new_mount(self) -> bool {
        matches!(self.kind, Kind::ReadOnly | Kind::Lost)
    }
}
