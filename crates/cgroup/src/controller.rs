/// The controllers that this crate supports, by their v1 names. v2 calls blkio `io`, and has cpuacct in every group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub(crate) enum Controller {
    Cpu = 1,
    Cpuacct = 1 << 1,
    Cpuset = 1 << 2,
    Memory = 1 << 3,
    Devices = 1 << 4,
    Freezer = 1 << 5,
    Blkio = 1 << 6,
    Pids = 1 << 7,
    Hugetlb = 1 << 8,
    NetCls = 1 << 9,
    NetPrio = 1 << 10,
    Rdma = 1 << 11,
    Misc = 1 << 12,
}

impl Controller {
    pub(crate) const ALL: [Self; 13] = [
        Self::Cpu,
        Self::Cpuacct,
        Self::Cpuset,
        Self::Memory,
        Self::Devices,
        Self::Freezer,
        Self::Blkio,
        Self::Pids,
        Self::Hugetlb,
        Self::NetCls,
        Self::NetPrio,
        Self::Rdma,
        Self::Misc,
    ];

    /// Returns the name of the controller on v1.
    pub(crate) const fn v1_name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cpuacct => "cpuacct",
            Self::Cpuset => "cpuset",
            Self::Memory => "memory",
            Self::Devices => "devices",
            Self::Freezer => "freezer",
            Self::Blkio => "blkio",
            Self::Pids => "pids",
            Self::Hugetlb => "hugetlb",
            Self::NetCls => "net_cls",
            Self::NetPrio => "net_prio",
            Self::Rdma => "rdma",
            Self::Misc => "misc",
        }
    }

    /// Returns the name in `cgroup.controllers`, or `None` if v2 does not have the controller (freezer and devices are
    /// in its core).
    pub(crate) const fn v2_name(self) -> Option<&'static str> {
        match self {
            Self::Blkio => Some("io"),
            Self::Cpuacct | Self::Devices | Self::Freezer | Self::NetCls | Self::NetPrio => None,
            other => Some(other.v1_name()),
        }
    }

    /// Returns the controller of a v2 file by its prefix: `memory` for `memory.high`.
    pub(crate) fn from_v2_file(file: &str) -> Option<Self> {
        let prefix = file.split_once('.')?.0;
        Self::ALL.into_iter().find(|c| c.v2_name() == Some(prefix))
    }
}

/// A set of controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Controllers(u16);

impl Controllers {
    pub(crate) fn has(self, controller: Controller) -> bool {
        self.0 & controller as u16 != 0
    }

    pub(crate) fn add(&mut self, controller: Controller) {
        self.0 |= controller as u16;
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Controller> {
        Controller::ALL.into_iter().filter(move |c| self.has(*c))
    }

    /// Parses the options of a v1 mount: `rw,cpu,cpuacct`.
    pub(crate) fn from_v1_options(options: &str) -> Self {
        let mut set = Self::default();
        for word in options.split(',') {
            if let Some(controller) = Controller::ALL.into_iter().find(|c| c.v1_name() == word) {
                set.add(controller);
            }
        }
        set
    }

    /// Parses the contents of `cgroup.controllers`.
    pub(crate) fn from_v2_list(list: &str) -> Self {
        let mut set = Self::default();
        for word in list.split_whitespace() {
            if let Some(controller) = Controller::ALL.into_iter().find(|c| c.v2_name() == Some(word)) {
                set.add(controller);
            }
        }
        set
    }
}
