use crate::{DeviceNode, Hook, IntelRdt, Mount, NetDevice, spec::ContainerEdits};

/// The changes to a container for its devices, in the order of the request. The edits of a file that apply to all its
/// devices are included once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edits {
    /// Environment variables, `NAME=value`.
    pub env: Vec<String>,
    /// Device files.
    pub device_nodes: Vec<DeviceNode>,
    /// Network interfaces.
    pub net_devices: Vec<NetDevice>,
    /// Hooks to run.
    pub hooks: Vec<Hook>,
    /// Mounts.
    pub mounts: Vec<Mount>,
    /// Intel RDT settings; those of the last device apply.
    pub intel_rdt: Option<IntelRdt>,
    /// Additional group ids; never 0, which the specification ignores.
    pub additional_gids: Vec<u32>,
}

impl Edits {
    pub(crate) fn add(&mut self, more: &ContainerEdits) {
        self.env.extend_from_slice(&more.env);
        self.device_nodes.extend_from_slice(&more.device_nodes);
        self.net_devices.extend_from_slice(&more.net_devices);
        self.hooks.extend_from_slice(&more.hooks);
        self.mounts.extend_from_slice(&more.mounts);
        if more.intel_rdt.is_some() {
            self.intel_rdt.clone_from(&more.intel_rdt);
        }
        self.additional_gids.extend(more.additional_gids.iter().filter(|gid| **gid != 0));
    }
}

impl Mount {
    /// Reports whether this is a bind mount, and not a new file system.
    pub fn is_bind(&self) -> bool {
        let word = |word: &String| word == "bind" || word == "rbind";
        matches!(self.kind.as_str(), "" | "bind" | "none") || self.options.iter().any(word)
    }

    /// Converts to an entry of the runtime specification. A bind mount is recursive by default.
    pub fn to_oci(&self) -> oci::Mount {
        let mut options = self.options.clone();
        if self.is_bind() && !options.iter().any(|word| word == "bind" || word == "rbind") {
            options.insert(0, "rbind".to_owned());
        }
        oci::Mount {
            destination: self.container_path.clone(),
            kind: Some(if self.is_bind() { "bind".to_owned() } else { self.kind.clone() }),
            source: Some(self.host_path.clone()),
            options,
            ..oci::Mount::default()
        }
    }
}

impl Hook {
    /// Converts to an entry of the runtime specification.
    pub fn to_oci(&self) -> oci::Hook {
        let Self { path, args, env, timeout, .. } = self.clone();
        oci::Hook { path, args, env, timeout }
    }

    /// Returns the list of the runtime specification to which the hook belongs.
    pub fn list<'a>(&self, hooks: &'a mut oci::Hooks) -> &'a mut Vec<oci::Hook> {
        match self.hook_name.as_str() {
            "prestart" => &mut hooks.prestart,
            "createContainer" => &mut hooks.create_container,
            "startContainer" => &mut hooks.start_container,
            "poststart" => &mut hooks.poststart,
            "poststop" => &mut hooks.poststop,
            // A file with another name is refused by `check`.
            _ => &mut hooks.create_runtime,
        }
    }
}

impl IntelRdt {
    /// Converts to `linux.intelRdt` of the runtime specification.
    pub fn to_oci(&self) -> oci::IntelRdt {
        let non_empty = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        oci::IntelRdt {
            clos_id: non_empty(&self.clos_id),
            schemata: self.schemata.clone(),
            l3_cache_schema: non_empty(&self.l3_cache_schema),
            mem_bw_schema: non_empty(&self.mem_bw_schema),
            enable_monitoring: self.enable_monitoring,
            enable_cmt: self.enable_cmt,
            enable_mbm: self.enable_mbm,
        }
    }
}
