//! Writes limits to the trees that have their controllers.

use rustix::io::Errno;

use crate::{
    Error, Group, Hierarchies, Limits, Nesting,
    controller::Controller,
    convert_v1, convert_v2,
    limits::Bound,
    privileges,
    setting::{self, Setting},
    tree::Tree,
};

/// The order in which controllers are written. Memory comes last, so that the other writes are not limited by it.
pub(crate) const ORDER: [Controller; 10] = [
    Controller::Cpu,
    Controller::Cpuset,
    Controller::Pids,
    Controller::Blkio,
    Controller::Hugetlb,
    Controller::NetCls,
    Controller::NetPrio,
    Controller::Rdma,
    Controller::Misc,
    Controller::Memory,
];

fn settings(limits: &Limits, controller: Controller, v2: bool) -> Vec<Setting> {
    if v2 { convert_v2::settings(limits, controller) } else { convert_v1::settings(limits, controller) }
}

/// Returns the first field that needs this controller.
pub(crate) fn first_field(limits: &Limits, controller: Controller, v2: bool) -> Option<&'static str> {
    settings(limits, controller, v2).first().map(|setting| setting.field)
}

/// Reports whether the limits cannot be applied without this controller.
pub(crate) fn is_required(limits: &Limits, controller: Controller, v2: bool) -> bool {
    settings(limits, controller, v2).iter().any(|setting| !setting.optional)
}

impl Limits {
    /// Checks that the cgroup version of this machine supports every limit.
    pub(crate) fn check(&self, trees: &Hierarchies) -> Result<(), Error> {
        if trees.memory_is_v2() { convert_v2::check(self) } else { Ok(()) }
    }

    /// Returns the first field, with its controller, that needs a tree of `all` which is not among `trees`.
    pub(crate) fn first_unavailable(
        &self,
        trees: &Hierarchies,
        all: &Hierarchies,
    ) -> Option<(&'static str, Controller)> {
        let is_missing = |controller: &Controller| all.with(*controller).is_some() && trees.with(*controller).is_none();
        let v2 = |controller| all.with(controller).is_some_and(|tree| tree.v2);
        let mut missing = ORDER.into_iter().filter(is_missing);
        missing.find_map(|controller| first_field(self, controller, v2(controller)).map(|field| (field, controller)))
    }
}

impl Group {
    /// Changes limits of a group in use. Limits that `limits` does not set are kept. For a group of a systemd unit, the
    /// properties of the unit are updated, too.
    pub fn update(&self, limits: &Limits) -> Result<(), Error> {
        self.check_update(limits)?;
        if let Some(unit) = &self.unit {
            unit.update(&self.trees, limits)?;
        }
        self.apply(limits)
    }

    /// With `memory.checkBeforeUpdate`, refuses a memory limit below the usage, which would cause OOM kills.
    pub(crate) fn check_update(&self, limits: &Limits) -> Result<(), Error> {
        if limits.memory.check_before_update
            && let Some(Bound::At(limit)) = limits.memory.limit
        {
            let usage = self.stats()?.memory_usage;
            if usage > limit {
                let reason = format!("{limit} is below the current usage of {usage} bytes");
                return Err(Error::invalid("memory.limit", reason));
            }
        }
        Ok(())
    }

    pub(crate) fn apply(&self, limits: &Limits) -> Result<(), Error> {
        limits.check(&self.trees)?;
        for controller in ORDER {
            self.apply_controller(limits, controller)?;
        }
        if let Some(nesting) = limits.nesting {
            self.limit_nesting(nesting)?;
        }
        let Some(policy) = &limits.devices else { return Ok(()) };
        let applied = match (self.trees.with(Controller::Devices), self.trees.v2()) {
            (Some(tree), _) => policy.write_v1(tree, self.path_in(tree)),
            (None, Some(tree)) => policy.attach(tree, self.path_in(tree)),
            (None, None) => Err(self.unavailable("devices", Controller::Devices)),
        };
        match applied {
            // Only root of the initial user namespace can restrict devices or create device nodes. The container can
            // open only devices that the user may open anyway.
            Err(_) if !privileges::is_host_root() => Ok(()),
            applied => applied,
        }
    }

    fn limit_nesting(&self, nesting: Nesting) -> Result<(), Error> {
        let Some(tree) = self.trees.v2() else { return Ok(()) };
        for (name, value) in [("cgroup.max.depth", nesting.depth), ("cgroup.max.descendants", nesting.descendants)] {
            let (file, value) = (self.file(tree, name), value.to_string());
            match tree.try_write(&file, &value) {
                // The files exist since Linux 4.14.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(tree.write_failed(&file, &value, errno)),
            }
        }
        Ok(())
    }

    fn apply_controller(&self, limits: &Limits, controller: Controller) -> Result<(), Error> {
        let v2 = self.trees.v2();
        let Some(tree) = self.trees.with(controller) else {
            // The kubelet sets every huge page size for every container, also on machines without the controller.
            if controller == Controller::Hugetlb {
                return Ok(());
            }
            return match first_field(limits, controller, v2.is_some()).or(first_field(limits, controller, false)) {
                None => Ok(()),
                Some(field) => Err(self.unavailable(field, controller)),
            };
        };
        self.refuse_unified_on_v1(limits, controller, tree)?;
        let settings = settings(limits, controller, tree.v2);
        if settings.is_empty() {
            return Ok(());
        }
        setting::write_all(tree, self.path_in(tree), controller, &settings)
    }

    fn refuse_unified_on_v1(&self, limits: &Limits, controller: Controller, tree: &Tree) -> Result<(), Error> {
        match limits.unified.iter().find(|(known, ..)| *known == controller) {
            Some((_, file, _)) if !tree.v2 => Err(Error::Unavailable {
                path: self.path.to_string(),
                field: format!("unified.{file}"),
                controller: controller.v1_name(),
                reason: "the controller is mounted as v1; set the limit by its own field".into(),
            }),
            _ => Ok(()),
        }
    }

    fn unavailable(&self, field: &str, controller: Controller) -> Error {
        Error::Unavailable {
            path: self.path.to_string(),
            field: field.to_owned(),
            controller: controller.v1_name(),
            reason: "no mounted hierarchy has it; enable it on the kernel command line, or remove the field".into(),
        }
    }
}
