//! Collects what the plugins respond to one request. Each plugin sees what the earlier ones set.

mod bounds;
mod resources;

use std::collections::BTreeMap;

use crate::{
    messages::{
        Adjustment, AdjustmentLinux, Container, ContainerLinux, ContainerUpdate, CreateResponse, Hooks, Mount,
        Namespace, Rdt, Resources, UpdateLinux, UpdateResponse,
    },
    owners::{Conflict, Field, Owners},
};

/// Most updates of one response.
pub(crate) const UPDATES_MAX: usize = 1024;

/// Why a response cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error("plugin {plugin} requested an update of the container that is being created")]
    SelfUpdate { plugin: String },
    #[error("plugin {plugin} requested {count} updates; at most {UPDATES_MAX} are allowed")]
    TooMany { plugin: String, count: usize },
    #[error("plugin {plugin} set {what}: with those of the other plugins, {count} are too many")]
    TooLong { plugin: String, what: &'static str, count: usize },
}

/// Reports whether a key requests a removal, and returns what it names.
pub(crate) fn marked(key: &str) -> (bool, &str) {
    key.strip_prefix('-').map_or((false, key), |name| (true, name))
}

/// Returns a destination as it is compared: `/data/` is `/data`.
fn without_slash(path: &str) -> &str {
    Some(path.trim_end_matches('/')).filter(|path| !path.is_empty()).unwrap_or(path)
}

/// What the plugins respond to the creation, update or stop of a container.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collector {
    /// The container as the next plugin sees it.
    pub(crate) container: Container,
    /// The update of this container that was requested, as the next plugin sees it; absent unless it is updated.
    pub(crate) requested: Option<Resources>,
    is_created: bool,
    pub(crate) adjust: Adjustment,
    pub(crate) updates: BTreeMap<String, ContainerUpdate>,
    pub(crate) owners: Owners,
}

impl Collector {
    pub(crate) fn of_creation(container: Container) -> Self {
        Self { container, is_created: true, ..Self::default() }
    }

    pub(crate) fn of_update(container: Container, requested: Resources) -> Self {
        Self { container, requested: Some(requested), ..Self::default() }
    }

    pub(crate) fn of_stop(container: Container) -> Self {
        Self { container, ..Self::default() }
    }

    /// Adds the response of a plugin, as a whole or not at all.
    pub(crate) fn add_creation(&mut self, plugin: &str, response: CreateResponse) -> Result<(), Unusable> {
        let adjust = response.adjust.unwrap_or_default();
        bounds::check(plugin, &self.adjust, &adjust)?;
        let mut next = self.clone();
        next.adjust(plugin, adjust)?;
        next.change_others(plugin, response.update)?;
        *self = next;
        Ok(())
    }

    /// Adds the response of a plugin, as a whole or not at all.
    pub(crate) fn add_update(&mut self, plugin: &str, response: UpdateResponse) -> Result<(), Unusable> {
        let mut next = self.clone();
        next.change_others(plugin, response.update)?;
        *self = next;
        Ok(())
    }

    fn change_others(&mut self, plugin: &str, updates: Vec<ContainerUpdate>) -> Result<(), Unusable> {
        let count = updates.len();
        if count > UPDATES_MAX {
            return Err(Unusable::TooMany { plugin: plugin.to_owned(), count });
        }
        for update in updates {
            if self.is_created && update.container_id == self.container.id {
                return Err(Unusable::SelfUpdate { plugin: plugin.to_owned() });
            }
            if let Some(resources) = update.linux.as_ref().and_then(|linux| linux.resources.as_ref()) {
                bounds::check_resources(plugin, resources)?;
            }
            self.add_container_update(plugin, update)?;
        }
        Ok(())
    }

    /// Merges the update of a container with those of earlier plugins. One that conflicts is dropped if its failure is
    /// to be ignored.
    fn add_container_update(&mut self, plugin: &str, update: ContainerUpdate) -> Result<(), Conflict> {
        let Some(new) = update.linux.and_then(|linux| linux.resources) else { return Ok(()) };
        let id = update.container_id;
        let requested = self.requested.as_ref().filter(|_| id == self.container.id);
        let known = self.updates.get(&id);
        let earlier = known.and_then(|update| update.linux.clone()?.resources).or_else(|| requested.cloned());
        let (mut merged, before) = (earlier.unwrap_or_default(), self.owners.save(&id));
        let owners = &mut self.owners;
        let claimed =
            resources::merge(&new, &mut merged, &mut |field, entry| owners.claim(&id, (field, entry), plugin));
        if claimed.is_err() && update.ignore_failure {
            self.owners.restore(&id, before);
            return Ok(());
        }
        claimed?;
        if requested.is_some() {
            self.requested = Some(merged.clone());
        }
        let ignore_failure = update.ignore_failure && known.is_none_or(|known| known.ignore_failure);
        let linux = Some(UpdateLinux { resources: Some(merged) });
        self.updates.insert(id.clone(), ContainerUpdate { container_id: id, linux, ignore_failure });
        Ok(())
    }

    fn adjust(&mut self, plugin: &str, new: Adjustment) -> Result<(), Conflict> {
        let mut claims = Claims { owners: &mut self.owners, container: &self.container.id.clone(), plugin };
        let (adjust, shown) = (&mut self.adjust, &mut self.container);
        claims.map(Field::Annotations, new.annotations, &mut adjust.annotations, &mut shown.annotations)?;
        let key = |mount: &Mount| without_slash(&mount.destination).to_owned();
        claims.list(Field::Mounts, new.mounts, key, &mut adjust.mounts, &mut shown.mounts)?;
        let mut env = variables(&shown.env);
        claims.list(Field::Env, new.env, |variable| variable.key.clone(), &mut adjust.env, &mut env)?;
        shown.env = env.into_iter().map(|variable| format!("{}={}", variable.key, variable.value)).collect();
        claims.arguments(new.args, &mut adjust.args, &mut shown.args)?;
        claims.hooks(
            new.hooks.unwrap_or_default(),
            adjust.hooks.get_or_insert_default(),
            shown.hooks.get_or_insert_default(),
        );
        for limit in new.rlimits {
            claims.claim(Field::Rlimits, Some(&limit.r#type))?;
            shown.rlimits.push(limit.clone());
            adjust.rlimits.push(limit);
        }
        for device in new.cdi_devices {
            claims.claim(Field::CdiDevices, Some(&device.name))?;
            adjust.cdi_devices.push(device);
        }
        let linux = new.linux.unwrap_or_default();
        claims.linux(linux, adjust.linux.get_or_insert_default(), shown.linux.get_or_insert_default())
    }
}

fn variables(env: &[String]) -> Vec<crate::messages::KeyValue> {
    let pair = |variable: &String| {
        let (key, value) = variable.split_once('=').unwrap_or((variable, ""));
        crate::messages::KeyValue { key: key.to_owned(), value: value.to_owned() }
    };
    env.iter().map(pair).collect()
}

/// What a plugin claims of the container that is being created.
struct Claims<'a> {
    owners: &'a mut Owners,
    container: &'a str,
    plugin: &'a str,
}

impl Claims<'_> {
    fn claim(&mut self, field: Field, entry: Option<&str>) -> Result<(), Conflict> {
        self.owners.claim(self.container, (field, entry), self.plugin)
    }

    /// Adds entries of a map to the collected ones, and to those that the next plugin sees.
    fn map<T: Clone + Default>(
        &mut self,
        field: Field,
        new: BTreeMap<String, T>,
        collected: &mut BTreeMap<String, T>,
        shown: &mut BTreeMap<String, T>,
    ) -> Result<(), Conflict> {
        let (removed, set): (Vec<_>, Vec<_>) = new.into_iter().partition(|(key, _)| marked(key).0);
        for (key, _) in removed {
            let name = marked(&key).1;
            self.owners.release(self.container, field, Some(name));
            collected.remove(name);
            shown.remove(name);
            collected.insert(key, T::default());
        }
        for (key, value) in set {
            self.claim(field, Some(&key))?;
            shown.insert(key.clone(), value.clone());
            collected.insert(key, value);
        }
        Ok(())
    }

    /// Adds entries of a list, which a key identifies, to the collected ones, and to those that the next plugin sees.
    fn list<T: Clone>(
        &mut self,
        field: Field,
        new: Vec<T>,
        key: impl Fn(&T) -> String,
        collected: &mut Vec<T>,
        shown: &mut Vec<T>,
    ) -> Result<(), Conflict> {
        let (removed, set): (Vec<T>, Vec<T>) = new.into_iter().partition(|entry| marked(&key(entry)).0);
        for removal in removed {
            let removal_key = key(&removal);
            let name = marked(&removal_key).1;
            self.owners.release(self.container, field, Some(name));
            collected.retain(|entry| key(entry) != name);
            shown.retain(|entry| key(entry) != name);
            collected.push(removal);
        }
        for entry in set {
            let name = key(&entry);
            self.claim(field, Some(&name))?;
            shown.retain(|known| key(known) != name);
            collected.retain(|known| key(known) != name);
            shown.push(entry.clone());
            collected.push(entry);
        }
        Ok(())
    }

    /// Adds and removes namespaces. A removal is an adjustment, too: the container uses the namespace of the node instead.
    fn namespaces(
        &mut self,
        new: Vec<Namespace>,
        collected: &mut Vec<Namespace>,
        shown: &mut Vec<Namespace>,
    ) -> Result<(), Conflict> {
        for namespace in new {
            let (is_removal, name) = marked(&namespace.r#type);
            self.claim(Field::Namespaces, Some(name))?;
            shown.retain(|known| known.r#type != name);
            collected.retain(|known| marked(&known.r#type).1 != name);
            if !is_removal {
                shown.push(namespace.clone());
            }
            collected.push(namespace);
        }
        Ok(())
    }

    /// Sets a field that has one value.
    fn value<T: Clone>(
        &mut self,
        field: Field,
        new: Option<T>,
        collected: &mut Option<T>,
        shown: Option<&mut Option<T>>,
    ) -> Result<(), Conflict> {
        let Some(new) = new else { return Ok(()) };
        self.claim(field, None)?;
        if let Some(shown) = shown {
            *shown = Some(new.clone());
        }
        *collected = Some(new);
        Ok(())
    }

    /// Replaces the arguments. An empty first one permits to replace those of another plugin.
    fn arguments(
        &mut self,
        mut new: Vec<String>,
        collected: &mut Vec<String>,
        shown: &mut Vec<String>,
    ) -> Result<(), Conflict> {
        if new.is_empty() {
            return Ok(());
        }
        if new[0].is_empty() {
            self.owners.release(self.container, Field::Args, None);
            new.remove(0);
        }
        self.claim(Field::Args, None)?;
        shown.clone_from(&new);
        *collected = new;
        Ok(())
    }

    fn hooks(&mut self, new: Hooks, collected: &mut Hooks, shown: &mut Hooks) {
        if new == Hooks::default() {
            return;
        }
        self.owners.add_hooks(self.container, self.plugin);
        for hooks in [collected, shown] {
            hooks.prestart.extend(new.prestart.iter().cloned());
            hooks.create_runtime.extend(new.create_runtime.iter().cloned());
            hooks.create_container.extend(new.create_container.iter().cloned());
            hooks.start_container.extend(new.start_container.iter().cloned());
            hooks.poststart.extend(new.poststart.iter().cloned());
            hooks.poststop.extend(new.poststop.iter().cloned());
        }
    }

    fn linux(
        &mut self,
        new: AdjustmentLinux,
        adjust: &mut AdjustmentLinux,
        shown: &mut ContainerLinux,
    ) -> Result<(), Conflict> {
        self.list(Field::Devices, new.devices, |device| device.path.clone(), &mut adjust.devices, &mut shown.devices)?;
        self.namespaces(new.namespaces, &mut adjust.namespaces, &mut shown.namespaces)?;
        self.map(Field::Sysctl, new.sysctl, &mut adjust.sysctl, &mut shown.sysctl)?;
        self.map(Field::NetDevices, new.net_devices, &mut adjust.net_devices, &mut shown.net_devices)?;
        if !new.cgroups_path.is_empty() {
            self.claim(Field::CgroupsPath, None)?;
            shown.cgroups_path.clone_from(&new.cgroups_path);
            adjust.cgroups_path = new.cgroups_path;
        }
        self.value(Field::OomScoreAdj, new.oom_score_adj, &mut adjust.oom_score_adj, Some(&mut shown.oom_score_adj))?;
        self.value(Field::IoPriority, new.io_priority, &mut adjust.io_priority, Some(&mut shown.io_priority))?;
        self.value(Field::Seccomp, new.seccomp_policy, &mut adjust.seccomp_policy, Some(&mut shown.seccomp_policy))?;
        self.value(Field::Scheduler, new.scheduler, &mut adjust.scheduler, Some(&mut shown.scheduler))?;
        self.value(Field::MemoryPolicy, new.memory_policy, &mut adjust.memory_policy, None)?;
        self.rdt(new.rdt, &mut adjust.rdt)?;
        if let Some(new) = new.resources {
            let mut claim = |field, entry: Option<&str>| self.claim(field, entry);
            resources::merge(&new, adjust.resources.get_or_insert_default(), &mut claim)?;
            resources::merge(&new, shown.resources.get_or_insert_default(), &mut |_, _| Ok(()))?;
            // Rules are applied in order; none replaces another.
            for resources in [adjust.resources.get_or_insert_default(), shown.resources.get_or_insert_default()] {
                resources.devices.extend(new.devices.iter().cloned());
            }
        }
        Ok(())
    }

    fn rdt(&mut self, new: Option<Rdt>, collected: &mut Option<Rdt>) -> Result<(), Conflict> {
        let Some(new) = new else { return Ok(()) };
        if new.remove {
            for field in [Field::RdtClosId, Field::RdtSchemata, Field::RdtMonitoring] {
                self.owners.release(self.container, field, None);
            }
            *collected = Some(Rdt { remove: true, ..Rdt::default() });
        }
        let rdt = collected.get_or_insert_default();
        self.value(Field::RdtClosId, new.clos_id, &mut rdt.clos_id, None)?;
        self.value(Field::RdtSchemata, new.schemata, &mut rdt.schemata, None)?;
        self.value(Field::RdtMonitoring, new.enable_monitoring, &mut rdt.enable_monitoring, None)
    }
}

#[cfg(test)]
mod tests;
