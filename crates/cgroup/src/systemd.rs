//! Groups that systemd creates: a transient scope per container, requested over D-Bus.
//!
//! ```text
//! Unit::parse("machine.slice:libpod:4f…")      libpod-4f….scope below machine.slice
//!   │ start(pid)     StartTransientUnit, wait for the job, which moves the process into the scope
//!   ▼
//! Group              the directory that systemd created (v1: and those it does not create), with all limits
//!   │ update         SetUnitProperties, then the kernel files
//!   ▼ remove         StopUnit, wait for the job; ResetFailedUnit; remove what systemd did not create
//! ```
//!
//! Limits are set as properties of the unit if systemd supports them, and all limits are written to the kernel files,
//! too: so limits that systemd does not support are in effect, and the others do not change when systemd writes its
//! properties again.
//!
//! The D-Bus client (`bus.rs`) is our own, because it needs only a socket and two kinds of messages, while a library
//! needs an event loop.
//!
//! Needs systemd 236 or newer (`Delegate=` of scopes and `AttachProcessesToUnit` for users' scopes). Sources:
//! org.freedesktop.systemd1(5), and "Control Group APIs and Delegation" of systemd's documentation.

mod bus;
mod connection;
mod literal;
mod message;
mod name;
mod properties;
mod value;

use std::collections::BTreeMap;

use bus::{Bus, CallError, Owner};
use name::{check_unit_name, slice_path};
use properties::Properties;
use rustix::process::Pid;
use value::Value;

use crate::{Error, GroupPath, Hierarchies, Limits, privileges};

pub use connection::{Connection, LoadedUnit};
pub use name::expand_slice;

/// How often a failed scope of the same name is reset.
const ATTEMPTS_MAX: usize = 8;

/// The transient scope of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    name: String,
    slice: String,
    owner: Owner,
    /// Properties from annotations.
    properties: Properties,
    description: String,
}

impl Unit {
    /// Parses `linux.cgroupsPath` of the systemd driver, `slice:prefix:name`: the scope `prefix-name.scope` below the
    /// slice. Without a slice it is in `system.slice` (of a user's systemd: `user.slice`), without a prefix its name is
    /// `name.scope`, and without a path (`None` or empty) `pinrun-<id>.scope`.
    ///
    /// Root on the host uses the system's systemd, any other user their own (`systemd --user`).
    pub fn parse(path: Option<&str>, id: &str) -> Result<Self, Error> {
        let owner = if privileges::is_host_root() { Owner::System } else { Owner::User };
        let default_slice = if owner == Owner::System { "system.slice" } else { "user.slice" };
        let path = path.unwrap_or("");
        let wrong = |reason| Error::Path { path: path.chars().take(256).collect(), reason };
        let (slice, prefix, name) = match path.split(':').collect::<Vec<_>>()[..] {
            [""] => ("", "pinrun", id),
            [slice, prefix, name] => (slice, prefix, name),
            _ => return Err(wrong("not of the form slice:prefix:name, which the systemd driver requires")),
        };
        if name.is_empty() {
            return Err(wrong("the name after the second colon is empty"));
        }
        let slice = if slice.is_empty() { default_slice } else { slice };
        slice_path(slice).map_err(wrong)?;
        let name = if prefix.is_empty() { format!("{name}.scope") } else { format!("{prefix}-{name}.scope") };
        check_unit_name(&name).map_err(wrong)?;
        let description = format!("Container {id}");
        Ok(Self { name, slice: slice.to_owned(), owner, properties: Vec::new(), description })
    }

    /// Returns an existing scope.
    pub(crate) fn named(name: &str) -> Result<Self, Error> {
        let wrong = |reason| Error::Path { path: name.chars().take(256).collect(), reason };
        check_unit_name(name).map_err(wrong)?;
        let owner = if privileges::is_host_root() { Owner::System } else { Owner::User };
        let (slice, description) = (String::new(), String::new());
        Ok(Self { name: name.to_owned(), slice, owner, properties: Vec::new(), description })
    }

    /// Adds the properties of annotations `org.systemd.property.<Name>` (value: GVariant text).
    pub fn with_annotations(mut self, annotations: &BTreeMap<String, String>) -> Result<Self, Error> {
        self.properties = literal::properties(annotations)?;
        Ok(self)
    }

    /// Returns the name of the unit, `prefix-name.scope`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path that the system's systemd will use; the actual path is known after [`Unit::start`].
    pub fn expected_path(&self) -> Result<GroupPath, Error> {
        let slice = slice_path(&self.slice).map_err(|reason| Error::Path { path: self.slice.clone(), reason })?;
        GroupPath::parse(&format!("{slice}/{}", self.name))
    }

    /// Creates the scope with this process in it.
    pub(crate) fn start_transient(
        &self,
        bus: &mut Bus,
        trees: &Hierarchies,
        pid: Pid,
        limits: &Limits,
    ) -> Result<(), Error> {
        let v2 = trees.memory_is_v2();
        let mut properties: Properties = vec![
            ("Description".into(), Value::text(&*self.description)),
            ("Slice".into(), Value::text(&*self.slice)),
            ("Wants".into(), Value::texts([&*self.slice])),
            ("PIDs".into(), Value::List("u".into(), vec![Value::U32(pid.as_raw_pid().unsigned_abs())])),
            ("Delegate".into(), Value::Bool(true)),
            ("DefaultDependencies".into(), Value::Bool(false)),
        ];
        properties.extend(properties::accounting(v2));
        properties.extend(properties::from_limits(limits, v2));
        properties.retain(|(name, _)| !self.properties.iter().any(|(given, _)| given == name));
        properties.extend(self.properties.iter().cloned());
        self.request_start(bus, properties).map_err(|error| self.failed("start", error))
    }

    /// Starts a transient unit with these properties, and waits for the job.
    fn request_start(&self, bus: &mut Bus, mut properties: Properties) -> Result<(), CallError> {
        let mut attempts = properties.len() + ATTEMPTS_MAX;
        loop {
            let arguments = [
                Value::text(&*self.name),
                Value::text("fail"),
                list(&properties),
                Value::List("(sa(sv))".into(), Vec::new()),
            ];
            match bus.job("StartTransientUnit", &arguments) {
                Ok(result) if result == "done" => return Ok(()),
                Ok(result) => return Err(CallError::JobFailed(result)),
                Err(error) if attempts > 0 && self.can_retry(bus, &error, &mut properties) => attempts -= 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Reports whether another attempt may succeed, after it has reset a failed unit of the same name, or removed a
    /// property that this systemd does not support.
    fn can_retry(&self, bus: &mut Bus, error: &CallError, properties: &mut Properties) -> bool {
        let CallError::Refused(name, text) = error else { return false };
        if name == "org.freedesktop.systemd1.UnitExists" {
            return self.reset_failed(bus);
        }
        let before = properties.len();
        properties.retain(|(name, _)| !(properties::is_optional(name) && text.contains(name.as_str())));
        properties.len() < before
    }

    /// Resets a failed unit. Returns false if the unit is in use.
    fn reset_failed(&self, bus: &mut Bus) -> bool {
        bus.manager("ResetFailedUnit", &[Value::text(&*self.name)]).is_ok()
            && bus.manager("GetUnit", &[Value::text(&*self.name)]).is_err()
    }

    /// Sets the limits that systemd supports as properties of the unit.
    pub(crate) fn update(&self, trees: &Hierarchies, limits: &Limits) -> Result<(), Error> {
        let properties = properties::from_limits(limits, trees.memory_is_v2());
        let mut bus = self.connect("update")?;
        self.request_change(&mut bus, properties).map_err(|error| self.failed("update", error))
    }

    /// Sets properties of the unit until the next boot.
    fn request_change(&self, bus: &mut Bus, mut properties: Properties) -> Result<(), CallError> {
        while !properties.is_empty() {
            let arguments = [Value::text(&*self.name), Value::Bool(true), list(&properties)];
            match bus.manager("SetUnitProperties", &arguments) {
                Ok(_) => break,
                Err(error) if self.can_retry(bus, &error, &mut properties) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Moves a process into the scope, or into a child group of this name.
    pub(crate) fn attach(&self, below: &str, pid: Pid) -> Result<(), Error> {
        let below = if below.is_empty() { String::new() } else { format!("/{below}") };
        let pids = Value::List("u".into(), vec![Value::U32(pid.as_raw_pid().unsigned_abs())]);
        let arguments = [Value::text(&*self.name), Value::text(below), pids];
        let reply = self.connect("move a process into")?.manager("AttachProcessesToUnit", &arguments);
        reply.map(drop).map_err(|error| self.failed("move a process into", error))
    }

    /// Stops the scope: systemd kills its processes and removes its directories. A scope that does not exist is not an
    /// error.
    pub(crate) fn stop(&self) -> Result<(), Error> {
        self.stop_on(&mut self.connect("stop")?)
    }

    /// Kills all processes of a scope that was just started, and stops it.
    pub(crate) fn kill_and_stop(&self, bus: &mut Bus) {
        // SIGKILL is sent immediately: the init of a PID namespace ignores the SIGTERM of systemd, which would wait for
        // it for 90 s.
        let kill = [Value::text(&*self.name), Value::text("all"), Value::I32(9)];
        let _ = bus.manager("KillUnit", &kill);
        let _ = self.stop_on(bus);
    }

    fn stop_on(&self, bus: &mut Bus) -> Result<(), Error> {
        let name = || Value::text(&*self.name);
        match bus.job("StopUnit", &[name(), Value::text("replace")]) {
            Ok(_) => {}
            Err(CallError::Refused(error, _)) if error == "org.freedesktop.systemd1.NoSuchUnit" => {}
            Err(error) => return Err(self.failed("stop", error)),
        }
        // A failed scope stays loaded until it is reset; most scopes are not loaded anymore.
        let _ = bus.manager("ResetFailedUnit", &[name()]);
        Ok(())
    }

    /// Connects to the systemd that has the scope.
    pub(crate) fn connect(&self, operation: &'static str) -> Result<Bus, Error> {
        Bus::connect(self.owner).map_err(|error| self.failed(operation, error))
    }

    fn failed(&self, operation: &'static str, reason: impl ToString) -> Error {
        Error::Systemd { operation, unit: self.name.clone(), reason: reason.to_string() }
    }
}

/// Converts properties to the D-Bus type `a(sv)`.
fn list(properties: &Properties) -> Value {
    let pair = |(name, value): &(String, Value)| {
        Value::Struct(vec![Value::text(&**name), Value::Variant(Box::new(value.clone()))])
    };
    Value::List("(sv)".into(), properties.iter().map(pair).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_parsed() {
        let unit = Unit::parse(Some("a-b.slice:cri:4f"), "4f").unwrap();
        assert_eq!((unit.name(), unit.slice.as_str()), ("cri-4f.scope", "a-b.slice"));
        assert_eq!(unit.expected_path().unwrap().as_str(), "/a.slice/a-b.slice/cri-4f.scope");
        assert_eq!(Unit::parse(Some("-.slice::x"), "x").unwrap().expected_path().unwrap().as_str(), "/x.scope");
        assert_eq!(Unit::parse(None, "id").unwrap().name(), "pinrun-id.scope");
        assert_eq!(Unit::parse(Some(""), "id").unwrap().name(), "pinrun-id.scope");
        assert!(Unit::parse(Some("::x"), "x").unwrap().slice.ends_with(".slice"));
    }

    #[test]
    fn invalid_paths_are_refused() {
        for bad in [
            "/a/b",
            "a:b",
            "a:b:c:d",
            "a:b:c",
            "a--b.slice:p:n",
            "-a.slice:p:n",
            "a/b.slice:p:n",
            "a@b.slice:p:n",
            ".slice:p:n",
            "a.slice:p:",
            "a.slice:p/q:n",
            "a.slice:p:n n",
        ] {
            let error = Unit::parse(Some(bad), "id").unwrap_err();
            assert!(matches!(error, Error::Path { .. }), "{bad}: {error}");
        }
        assert!(Unit::parse(Some(&format!("a.slice:p:{}", "n".repeat(250))), "id").is_err());
        assert!(Unit::named("../x.scope").is_err());
    }
}
