//! A connection over which a long-lived program registers groups that exist already with systemd: the program creates a
//! group and uses it without waiting for systemd, and hands it over later.
//!
//! The connection receives all signals of systemd, so it must be dropped while there is nothing to do: systemd would
//! keep the signals that nobody reads.

use rustix::process::Pid;

use super::{
    Unit,
    bus::{Bus, CallError, Owner},
    check_unit_name,
    properties::{self, Properties},
    slice_path,
    value::{Reader, Value},
};
use crate::{Error, GroupPath, Hierarchies, Limits};

/// The error of systemd for a unit that is in use.
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
/// The error of systemd for a unit that it does not know.
const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";

/// A connection to the system's systemd.
#[derive(Debug)]
pub struct Connection {
    bus: Bus,
    usable: bool,
}

/// A unit that systemd has loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedUnit {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Its object path.
    object: String,
}

impl Unit {
    /// Returns the unit whose group this is: a scope in a slice, or a slice. `None` if systemd would use another path for
    /// a unit of this name.
    pub fn of_group(path: &GroupPath, description: &str) -> Option<Self> {
        let name = path.name();
        check_unit_name(name).ok()?;
        let parent = path.parent();
        let slice = parent.as_ref().map_or("-.slice", GroupPath::name);
        let expected = match name.strip_suffix(".scope") {
            Some(_) => format!("{}/{name}", slice_path(slice).ok()?),
            None => slice_path(name).ok()?,
        };
        (expected == path.as_str()).then(|| Self {
            name: name.to_owned(),
            slice: slice.to_owned(),
            owner: Owner::System,
            properties: Properties::new(),
            description: description.to_owned(),
        })
    }

    fn is_slice(&self) -> bool {
        self.name.ends_with(".slice")
    }

    /// Returns the properties with which an existing group is registered. What has no limit is set to "no limit", because
    /// systemd would write its own default to the kernel's file.
    fn registration(&self, v2: bool, pid: Option<Pid>, limits: &Limits) -> Properties {
        let mut properties: Properties = vec![
            ("Description".into(), Value::text(&*self.description)),
            ("Wants".into(), Value::texts([&*self.slice])),
            ("DefaultDependencies".into(), Value::Bool(false)),
            // A scope with a process that was killed by the OOM killer is not kept as a failed unit.
            ("CollectMode".into(), Value::text("inactive-or-failed")),
        ];
        if !self.is_slice() {
            properties.push(("Slice".into(), Value::text(&*self.slice)));
            properties.push(("Delegate".into(), Value::Bool(true)));
        }
        if let Some(pid) = pid {
            let pids = Value::List("u".into(), vec![Value::U32(pid.as_raw_pid().unsigned_abs())]);
            properties.push(("PIDs".into(), pids));
        }
        properties.extend(properties::accounting(v2));
        properties.extend(properties::from_limits(limits, v2));
        if !properties.iter().any(|(name, _)| name == properties::TASKS_MAX) {
            properties.push((properties::TASKS_MAX.into(), Value::U64(properties::INFINITY)));
        }
        properties
    }
}

impl Connection {
    /// Connects to the system's systemd. May block for 30 s, as all calls.
    ///
    /// # Errors
    /// systemd cannot be reached.
    pub fn open() -> Result<Self, Error> {
        let failed = |error: CallError| Error::Systemd {
            operation: "connect to the manager of",
            unit: "-.slice".into(),
            reason: error.to_string(),
        };
        Bus::connect(Owner::System).map(|bus| Self { bus, usable: true }).map_err(failed)
    }

    /// Returns false after an error of the connection: a new one is needed, and the call may have had no effect.
    pub fn is_usable(&self) -> bool {
        self.usable
    }

    /// Registers an existing group as a transient unit: a scope with this process, which must be in it, or a slice. If
    /// the unit exists, sets its limits. systemd writes the kernel's files of the group; call [`crate::Group::update`]
    /// afterwards for limits that systemd does not support or rounds.
    ///
    /// # Errors
    /// systemd refused the unit (it does for a process that has exited), or the connection failed.
    pub fn register(
        &mut self,
        unit: &Unit,
        trees: &Hierarchies,
        pid: Option<Pid>,
        limits: &Limits,
    ) -> Result<(), Error> {
        let properties = unit.registration(trees.memory_is_v2(), pid, limits);
        match unit.request_start(&mut self.bus, properties) {
            Err(CallError::Refused(name, _)) if name == UNIT_EXISTS => self.update(unit, trees, limits),
            outcome => self.checked(unit, "start", outcome),
        }
    }

    /// Sets the limits that systemd supports as properties of the unit.
    ///
    /// # Errors
    /// systemd refused them (it does for a unit that is gone), or the connection failed.
    pub fn update(&mut self, unit: &Unit, trees: &Hierarchies, limits: &Limits) -> Result<(), Error> {
        let properties = properties::from_limits(limits, trees.memory_is_v2());
        let outcome = unit.request_change(&mut self.bus, properties);
        self.checked(unit, "update", outcome)
    }

    /// Stops a unit, without waiting until it is stopped: systemd kills processes that are left in it. A unit that does
    /// not exist is not an error.
    ///
    /// # Errors
    /// systemd refused to stop it, or the connection failed.
    pub fn stop(&mut self, unit: &Unit) -> Result<(), Error> {
        let outcome = self.bus.manager("StopUnit", &[Value::text(&*unit.name), Value::text("replace")]);
        match outcome {
            Err(CallError::Refused(name, _)) if name == NO_SUCH_UNIT => Ok(()),
            outcome => self.checked(unit, "stop", outcome.map(drop)),
        }
    }

    /// Returns the loaded units whose names match a glob pattern.
    ///
    /// # Errors
    /// The connection failed.
    pub fn list(&mut self, pattern: &str) -> Result<Vec<LoadedUnit>, Error> {
        let unit = Unit::pattern(pattern);
        let arguments = [Value::texts([]), Value::texts([pattern])];
        let reply = self.bus.manager("ListUnitsByPatterns", &arguments);
        let units = reply.and_then(|reply| {
            parse_units(&reply.body).ok_or_else(|| CallError::Broken("the list of units is malformed".into()))
        });
        self.checked(&unit, "list", units)
    }

    /// Returns the cgroup of a scope; `None` if the scope does not have one, or does not exist anymore.
    ///
    /// # Errors
    /// The connection failed.
    pub fn group_of_scope(&mut self, unit: &LoadedUnit) -> Result<Option<GroupPath>, Error> {
        let interface = "org.freedesktop.systemd1.Scope";
        match self.bus.text_property(&unit.object, interface, "ControlGroup") {
            Ok(path) => Ok(GroupPath::parse(&path).ok()),
            Err(CallError::Refused(..)) => Ok(None),
            Err(error) => self.checked(&Unit::pattern(&unit.name), "read the cgroup of", Err(error)),
        }
    }

    fn checked<T>(&mut self, unit: &Unit, operation: &'static str, outcome: Result<T, CallError>) -> Result<T, Error> {
        self.usable &= !matches!(outcome, Err(CallError::Broken(_)));
        outcome.map_err(|error| unit.failed(operation, error))
    }
}

impl LoadedUnit {
    /// Returns the unit, to stop it.
    pub fn unit(&self) -> Unit {
        Unit::pattern(&self.name)
    }
}

impl Unit {
    /// Returns a unit of which only the name is known, which may be a pattern for units.
    fn pattern(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            slice: String::new(),
            owner: Owner::System,
            properties: Properties::new(),
            description: String::new(),
        }
    }
}

/// Decodes `a(ssssssouso)`: name, description, load, active and sub state, followed unit, object, job id, type, object.
fn parse_units(body: &[u8]) -> Option<Vec<LoadedUnit>> {
    let mut reader = Reader::new(body);
    let length = reader.u32()? as usize;
    reader.align(8);
    let end = reader.at().checked_add(length)?;
    let mut units = Vec::new();
    while reader.at() < end {
        reader.align(8);
        let (name, description) = (reader.string()?.to_owned(), reader.string()?.to_owned());
        for _ in 0..4 {
            reader.string()?;
        }
        let object = reader.string()?.to_owned();
        let _job = (reader.u32()?, reader.string()?, reader.string()?);
        units.push(LoadedUnit { name, description, object });
    }
    Some(units)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systemd::value::Writer;

    fn path(text: &str) -> GroupPath {
        GroupPath::parse(text).expect("a path")
    }

    #[test]
    fn a_group_has_a_unit_only_where_systemd_would_create_it() {
        let unit = Unit::of_group(&path("/a.slice/a-b.slice/pinion-1.scope"), "").expect("a scope");
        assert_eq!((unit.name(), unit.slice.as_str()), ("pinion-1.scope", "a-b.slice"));
        let unit = Unit::of_group(&path("/a.slice/a-b.slice"), "").expect("a slice");
        assert_eq!((unit.name(), unit.slice.as_str(), unit.is_slice()), ("a-b.slice", "a.slice", true));
        assert!(Unit::of_group(&path("/x.scope"), "").is_some_and(|unit| unit.slice == "-.slice"));
        for other in
            ["/kubepods/burstable/pod1", "/b.slice/a-b.slice", "/a-b.slice/x.scope", "/a/x.scope", "/a b.slice"]
        {
            assert_eq!(Unit::of_group(&path(other), ""), None, "{other}");
        }
    }

    #[test]
    fn a_registration_leaves_no_limit_to_the_defaults_of_systemd() {
        let limits = Limits::from_spec(&oci::Resources::default()).expect("no limits");
        let scope = Unit::of_group(&path("/a.slice/x.scope"), "text").expect("a scope");
        let properties = scope.registration(true, Pid::from_raw(7), &limits);
        let value = |name: &str| properties.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        assert_eq!(value("TasksMax"), Some(&Value::U64(u64::MAX)));
        assert_eq!(value("Delegate"), Some(&Value::Bool(true)));
        assert_eq!(value("PIDs"), Some(&Value::List("u".into(), vec![Value::U32(7)])));
        let slice = Unit::of_group(&path("/a.slice"), "").expect("a slice");
        let properties = slice.registration(true, None, &limits);
        assert!(!properties.iter().any(|(name, _)| ["PIDs", "Delegate", "Slice"].contains(&name.as_str())));
    }

    #[test]
    fn lists_of_units_are_bounds_checked() {
        let row = |name: &str| {
            let mut fields: Vec<_> =
                [name, "Pinion", "loaded", "active", "running", ""].map(Value::text).into_iter().collect();
            let job = [Value::U32(0), Value::text(""), Value::Object("/".into())];
            fields.push(Value::Object("/o".into()));
            fields.extend(job);
            Value::Struct(fields)
        };
        let mut out = Writer::default();
        out.value(&Value::List("(ssssssouso)".into(), vec![row("a.scope"), row("b.scope")]));
        let units = parse_units(&out.bytes).expect("two units");
        assert_eq!(units.iter().map(|unit| unit.name.as_str()).collect::<Vec<_>>(), ["a.scope", "b.scope"]);
        assert!((0..out.bytes.len()).all(|cut| parse_units(&out.bytes[..cut]).is_none()));
        assert_eq!(parse_units(&[255; 16]), None);
    }
}
