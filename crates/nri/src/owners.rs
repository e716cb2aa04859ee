//! Which plugin set which field of which container: two plugins must not set the same one.

use std::collections::BTreeMap;

use crate::messages::{EntryOwners, FieldOwners, OwningPlugins};

/// A field that plugins can set, by its number in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Field {
    Annotations = 1,
    Mounts = 2,
    Hooks = 3,
    Devices = 4,
    CdiDevices = 5,
    Env = 6,
    Args = 7,
    MemoryLimit = 8,
    MemoryReservation = 9,
    MemorySwap = 10,
    MemoryKernel = 11,
    MemoryTcp = 12,
    MemorySwappiness = 13,
    DisableOomKiller = 14,
    UseHierarchy = 15,
    CpuShares = 16,
    CpuQuota = 17,
    CpuPeriod = 18,
    CpuRealtimeRuntime = 19,
    CpuRealtimePeriod = 20,
    Cpus = 21,
    Mems = 22,
    Pids = 23,
    HugepageLimits = 24,
    BlockIoClass = 25,
    RdtClass = 26,
    Unified = 27,
    CgroupsPath = 28,
    OomScoreAdj = 29,
    Rlimits = 30,
    IoPriority = 31,
    Seccomp = 32,
    Namespaces = 33,
    Sysctl = 34,
    NetDevices = 35,
    Scheduler = 36,
    RdtClosId = 37,
    RdtSchemata = 38,
    RdtMonitoring = 39,
    MemoryPolicy = 40,
}

/// Two plugins set the same field of a container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("plugins {first} and {second} both set {field:?}{}", .entry.as_ref().map(|entry| format!(" {entry:?}")).unwrap_or_default())]
pub(crate) struct Conflict {
    /// The plugin that set it.
    pub(crate) first: String,
    /// The plugin that was not allowed to.
    pub(crate) second: String,
    /// The field.
    pub(crate) field: Field,
    /// The entry of a field that has several.
    pub(crate) entry: Option<String>,
}

/// The owners of the fields and entries of one container.
pub(crate) type Owned = BTreeMap<(Field, Option<String>), String>;

/// Owners by container, field and entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners(BTreeMap<String, Owned>);

impl Owners {
    /// Makes a plugin the owner of a field, or of an entry of it.
    pub(crate) fn claim(
        &mut self,
        container: &str,
        (field, entry): (Field, Option<&str>),
        plugin: &str,
    ) -> Result<(), Conflict> {
        let fields = self.0.entry(container.to_owned()).or_default();
        let owner = fields.entry((field, entry.map(str::to_owned))).or_insert_with(|| plugin.to_owned());
        if owner == plugin {
            return Ok(());
        }
        let (first, second) = (owner.clone(), plugin.to_owned());
        Err(Conflict { first, second, field, entry: entry.map(str::to_owned) })
    }

    /// Returns the owners of a container, to restore them.
    pub(crate) fn save(&self, container: &str) -> Owned {
        self.0.get(container).cloned().unwrap_or_default()
    }

    /// Undoes claims since the owners of a container were saved.
    pub(crate) fn restore(&mut self, container: &str, owned: Owned) {
        self.0.insert(container.to_owned(), owned);
    }

    /// Adds a plugin to the owners of the hooks, of which each plugin may add some.
    pub(crate) fn add_hooks(&mut self, container: &str, plugin: &str) {
        let owners = self.0.entry(container.to_owned()).or_default().entry((Field::Hooks, None)).or_default();
        if !owners.split(',').any(|owner| owner == plugin) {
            if !owners.is_empty() {
                owners.push(',');
            }
            owners.push_str(plugin);
        }
    }

    /// Releases a field: the plugin that sets it next removed it first.
    pub(crate) fn release(&mut self, container: &str, field: Field, entry: Option<&str>) {
        if let Some(fields) = self.0.get_mut(container) {
            fields.remove(&(field, entry.map(str::to_owned)));
        }
    }

    /// Returns the owners of a field of a container, with the entries that they own.
    pub(crate) fn of(&self, container: &str, field: Field) -> Vec<(Option<&str>, &str)> {
        let fields = self.0.get(container).into_iter().flatten().filter(|((owned, _), _)| *owned == field);
        fields.map(|((_, entry), owner)| (entry.as_deref(), owner.as_str())).collect()
    }

    pub(crate) fn to_message(&self) -> OwningPlugins {
        let mut message = OwningPlugins::default();
        for (container, fields) in &self.0 {
            let owners: &mut FieldOwners = message.owners.entry(container.clone()).or_default();
            for ((field, entry), plugin) in fields {
                let number = *field as i32;
                match entry {
                    None => drop(owners.simple.insert(number, plugin.clone())),
                    Some(entry) => {
                        let entries: &mut EntryOwners = owners.compound.entry(number).or_default();
                        entries.owners.insert(entry.clone(), plugin.clone());
                    }
                }
            }
        }
        message
    }
}
