/// The requests of the campaign about the pod of an attacker during its attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drive {
    /// No requests.
    Watch,
    /// Repeatedly executes this command in the container, with a timeout of a second.
    Exec(&'static [&'static str]),
    /// Keeps sessions of `crictl exec` and `crictl attach` open without reading their output.
    Sessions(&'static [&'static str]),
    /// Reopens the log, creates containers in the pod that mount a part of its volume, and checkpoints the container.
    Names,
    /// Checkpoints the container.
    Checkpoint,
    /// Executes a command in a victim through the streaming server.
    Streaming,
}

/// An attacker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attack {
    /// Name, for `--only`.
    pub(super) name: &'static str,
    /// Command of the container; `@files`, `@secret` and `@port` are replaced.
    pub(super) command: &'static [&'static str],
    pub(super) drive: Drive,
    /// Capabilities in addition to the default ones.
    pub(super) capabilities: &'static [&'static str],
    pub(super) privileged: bool,
    pub(super) host_network: bool,
    /// Whether its processes cannot be killed: a stop fails, with the reason, until the campaign releases them.
    pub(super) unkillable: bool,
}

const PROBE: Drive = Drive::Exec(&["/bin/attacker", "probe", "x"]);

const fn attack(name: &'static str, command: &'static [&'static str], drive: Drive) -> Attack {
    Attack { name, command, drive, capabilities: &[], privileged: false, host_network: false, unkillable: false }
}

impl Attack {
    /// Returns a container with the same name that only uses CPU time.
    pub(super) fn only_spins(self) -> Self {
        attack(self.name, &["spin"], Drive::Watch)
    }
}

/// All attackers. Only those whose attack requires a device are privileged.
pub(super) const ATTACKS: [Attack; 27] = [
    attack("freezer", &["freezer"], PROBE),
    attack("frozen", &["frozen"], PROBE),
    attack("nested", &["nested", "3000"], PROBE),
    attack("deep", &["deep", "10000", "/", "/volume", "/dev/shm"], Drive::Watch),
    attack("files", &["files", "@files", "/tmp"], Drive::Watch),
    attack("descriptors", &["descriptors"], PROBE),
    attack("zombies", &["zombies"], PROBE),
    attack("threads", &["threads"], PROBE),
    attack("forkbomb", &["rest"], Drive::Exec(&["/bin/attacker", "forkbomb"])),
    attack("flood", &["flood"], Drive::Watch),
    attack("exec-flood", &["rest"], Drive::Exec(&["/bin/attacker", "flood"])),
    attack("sessions", &["flood"], Drive::Sessions(&["/bin/attacker", "flood"])),
    attack("swap", &["swap", "/logs", "/volume", "@secret"], Drive::Names),
    Attack { capabilities: &["SYS_PTRACE"], ..attack("ptrace", &["ptrace"], PROBE) },
    Attack { privileged: true, ..attack("fuse", &["fuse"], Drive::Exec(&["/fuse/file"])) },
    Attack {
        privileged: true,
        unkillable: true,
        ..attack("fuse-stuck", &["fuse-stuck"], Drive::Exec(&["/fuse/file"]))
    },
    Attack { privileged: true, ..attack("fuse-checkpoint", &["fuse"], Drive::Checkpoint) },
    attack("signals", &["signals"], PROBE),
    attack("leave", &["rest"], Drive::Exec(&["/bin/attacker", "leave"])),
    attack("namespaces", &["namespaces"], PROBE),
    attack("etc", &["etc"], PROBE),
    attack("memory", &["memory"], PROBE),
    Attack { host_network: true, ..attack("connections", &["connections", "@port"], Drive::Streaming) },
    attack("spin", &["spin"], PROBE),
    attack("hold-output", &["hold-output"], PROBE),
    attack("hold-exec", &["rest"], Drive::Exec(&["/bin/attacker", "hold-exec"])),
    attack("hold-passed", &["hold-passed"], Drive::Exec(&["/bin/attacker", "pass"])),
];
