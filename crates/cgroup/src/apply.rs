//! Limits into the trees that have their controllers.

use rustix::io::Errno;

use crate::{
    Error, Group, Hierarchies, Limits, Nesting,
    controller::Controller,
    convert_v1, convert_v2,
    limits::Bound,
    ownership,
    setting::{self, Setting},
    tree::Tree,
};

/// Memory last: what is written before is not yet counted against it.
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

/// The first field that needs this controller.
pub(crate) fn field_of(limits: &Limits, controller: Controller, v2: bool) -> Option<&'static str> {
    settings(limits, controller, v2).first().map(|setting| setting.field)
}

/// Whether a group without this controller would be another than was asked for.
pub(crate) fn is_required(limits: &Limits, controller: Controller, v2: bool) -> bool {
    settings(limits, controller, v2).iter().any(|setting| !setting.optional)
}

impl Limits {
    /// Whether this machine's version of cgroups has a word for each of them.
    pub(crate) fn check(&self, trees: &Hierarchies) -> Result<(), Error> {
        if trees.memory_is_v2() { convert_v2::check(self) } else { Ok(()) }
    }

    /// The first field, with its controller, that needs a tree which is not among these.
    pub(crate) fn first_beyond(&self, trees: &Hierarchies, all: &Hierarchies) -> Option<(&'static str, Controller)> {
        let beyond = |controller: &Controller| all.with(*controller).is_some() && trees.with(*controller).is_none();
        let v2 = |controller| all.with(controller).is_some_and(|tree| tree.v2);
        ORDER.into_iter().filter(beyond).find_map(|of| field_of(self, of, v2(of)).map(|field| (field, of)))
    }
}

impl Group {
    /// Changes the limits of a group in use; what `limits` does not set stays as it is. systemd is told of those of a
    /// unit.
    pub fn update(&self, limits: &Limits) -> Result<(), Error> {
        self.check_update(limits)?;
        if let Some(unit) = &self.unit {
            unit.update(self, limits)?;
        }
        self.apply(limits)
    }

    /// Whether a lower limit of memory would kill, where the spec asks for that to be checked.
    pub(crate) fn check_update(&self, limits: &Limits) -> Result<(), Error> {
        if limits.memory.check_before_update
            && let Some(Bound::At(limit)) = limits.memory.limit
        {
            let usage = self.stats()?.memory_usage;
            if usage > limit {
                let reason = format!("{limit} is below the {usage} bytes in use");
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
        let done = match (self.trees.with(Controller::Devices), self.trees.v2()) {
            (Some(tree), _) => policy.write_v1(tree, self.place(tree)),
            (None, Some(tree)) => policy.attach(tree, self.place(tree)),
            (None, None) => Err(self.unavailable("devices", Controller::Devices)),
        };
        match done {
            // Without the machine's root nobody can restrict devices, nor make their nodes: what can be opened is what
            // the user may open anyway.
            Err(_) if !ownership::is_machine_root() => Ok(()),
            done => done,
        }
    }

    fn limit_nesting(&self, nesting: Nesting) -> Result<(), Error> {
        let Some(tree) = self.trees.v2() else { return Ok(()) };
        for (name, value) in [("cgroup.max.depth", nesting.depth), ("cgroup.max.descendants", nesting.descendants)] {
            let (file, value) = (self.file(tree, name), value.to_string());
            match tree.try_write(&file, &value) {
                // Before Linux 4.14.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(tree.write_failed(&file, &value, errno)),
            }
        }
        Ok(())
    }

    fn apply_controller(&self, limits: &Limits, controller: Controller) -> Result<(), Error> {
        let v2 = self.trees.v2();
        let Some(tree) = self.trees.with(controller) else {
            // Kubelet names every size of huge page in every container, on machines without the controller too.
            if controller == Controller::Hugetlb {
                return Ok(());
            }
            return match field_of(limits, controller, v2.is_some()).or(field_of(limits, controller, false)) {
                None => Ok(()),
                Some(field) => Err(self.unavailable(field, controller)),
            };
        };
        self.refuse_unified_on_v1(limits, controller, tree)?;
        let settings = settings(limits, controller, tree.v2);
        if settings.is_empty() {
            return Ok(());
        }
        setting::write_all(tree, self.place(tree), controller, &settings)
    }

    fn refuse_unified_on_v1(&self, limits: &Limits, controller: Controller, tree: &Tree) -> Result<(), Error> {
        match limits.unified.iter().find(|(of, ..)| *of == controller) {
            Some((_, file, _)) if !tree.v2 => Err(Error::Unavailable {
                path: self.path.to_string(),
                field: format!("unified.{file}"),
                controller: controller.v1_name(),
                reason: "it is mounted as v1 here; set the limit by its own field".into(),
            }),
            _ => Ok(()),
        }
    }

    fn unavailable(&self, field: &str, controller: Controller) -> Error {
        Error::Unavailable {
            path: self.path.to_string(),
            field: field.to_owned(),
            controller: controller.v1_name(),
            reason: "no mounted tree has it; enable it on the kernel's command line, or leave the field out".into(),
        }
    }
}
