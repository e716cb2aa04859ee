use crate::{DeviceNode, Hook, IntelRdt, Mount, NetDevice, spec::ContainerEdits};

/// What containers get with their devices, in the order of the request; of a file's own edits once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edits {
    /// `NAME=value`
    pub env: Vec<String>,
    /// Device files.
    pub device_nodes: Vec<DeviceNode>,
    /// Network interfaces.
    pub net_devices: Vec<NetDevice>,
    /// Programs to run.
    pub hooks: Vec<Hook>,
    /// Mounts.
    pub mounts: Vec<Mount>,
    /// The last one counts.
    pub intel_rdt: Option<IntelRdt>,
    /// More groups; never 0, which the specification ignores.
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
    /// Whether it shows something of the node and makes no file system.
    pub fn is_bind(&self) -> bool {
        let word = |word: &String| word == "bind" || word == "rbind";
        matches!(self.kind.as_str(), "" | "bind" | "none") || self.options.iter().any(word)
    }

    /// As an entry of a runtime specification. A bind mount of which nothing is said is recursive.
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
    /// As an entry of a runtime specification.
    pub fn to_oci(&self) -> oci::Hook {
        let Self { path, args, env, timeout, .. } = self.clone();
        oci::Hook { path, args, env, timeout }
    }

    /// The list of a runtime specification that it belongs to.
    pub fn list<'a>(&self, hooks: &'a mut oci::Hooks) -> &'a mut Vec<oci::Hook> {
        match self.hook_name.as_str() {
            "prestart" => &mut hooks.prestart,
            "createContainer" => &mut hooks.create_container,
            "startContainer" => &mut hooks.start_container,
            "poststart" => &mut hooks.poststart,
            "poststop" => &mut hooks.poststop,
            // Other names were refused with their file.
            _ => &mut hooks.create_runtime,
        }
    }
}

impl IntelRdt {
    /// As `linux.intelRdt` of a runtime specification.
    pub fn to_oci(&self) -> oci::IntelRdt {
        let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        oci::IntelRdt {
            clos_id: said(&self.clos_id),
            schemata: self.schemata.clone(),
            l3_cache_schema: said(&self.l3_cache_schema),
            mem_bw_schema: said(&self.mem_bw_schema),
            enable_monitoring: self.enable_monitoring,
            enable_cmt: self.enable_cmt,
            enable_mbm: self.enable_mbm,
        }
    }
}
