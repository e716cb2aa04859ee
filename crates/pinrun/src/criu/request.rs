//! Requests and responses, with the field numbers of CRIU's `images/rpc.proto`.

use super::wire::{Message, Value, fields};
use crate::failure::Failure;

/// The type of a request (`criu_req_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Dump = 1,
    Restore = 2,
    PreDump = 4,
    /// A notification of CRIU, which waits for its acknowledgement.
    Notify = 6,
}

/// `criu_opts`, with setters for the fields that are used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options(Message);

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($type:ty) = $write:ident $field:literal;)*) => {
        impl Options {
            $($(#[$doc])* pub(crate) fn $name(&mut self, value: $type) -> &mut Self {
                self.0.$write($field, value);
                self
            })*
        }
    };
}

setters! {
    /// A descriptor of the requesting process.
    images_directory(i32) = number 1;
    pid(i32) = number 2;
    leave_running(bool) = flag 3;
    external_unix_sockets(bool) = flag 4;
    tcp_established(bool) = flag 5;
    /// Device files may have other paths than at the checkpoint.
    evasive_devices(bool) = flag 6;
    shell_job(bool) = flag 7;
    file_locks(bool) = flag 8;
    log_level(i32) = number 9;
    /// A file name in the work directory.
    log_file(&str) = text 10;
    notify(bool) = flag 12;
    root(&str) = text 13;
    /// A path relative to the image directory.
    parent_images(&str) = text 14;
    track_memory(bool) = flag 15;
    auto_dedup(bool) = flag 16;
    /// A descriptor of the requesting process.
    work_directory(i32) = number 17;
    link_remap(bool) = flag 18;
    manage_cgroups(bool) = flag 24;
    /// The restored init becomes a child of the requesting process.
    sibling(bool) = flag 26;
    cgroup_mode(i32) = number 34;
    external(&str) = text 37;
    /// Namespaces (`CLONE_NEW*`) that are created without their contents.
    empty_namespaces(i32) = number 38;
    freezer(&str) = text 44;
    skip_in_flight(bool) = flag 46;
    lazy_pages(bool) = flag 48;
    orphan_terminal(bool) = flag 50;
    configuration(&str) = text 51;
    lsm_profile(&str) = text 53;
    lsm_mount_context(&str) = text 64;
}

impl Options {
    pub(crate) fn page_server(&mut self, address: &str, port: u16) -> &mut Self {
        let mut server = Message::default();
        server.text(1, address).number(2, port.into());
        self.0.message(11, &server);
        self
    }

    /// Sets the path below which the cgroups of a controller (of v2: "") are restored.
    pub(crate) fn cgroup_root(&mut self, controller: &str, path: &str) -> &mut Self {
        self.pair(25, controller, path)
    }

    /// Adds an external mount: for a checkpoint its mountpoint and a name, for a restore the name and its source.
    pub(crate) fn mount(&mut self, key: &str, value: &str) -> &mut Self {
        self.pair(23, key, value)
    }

    /// Adds a namespace into which to restore.
    pub(crate) fn join(&mut self, kind: &str, path: &str) -> &mut Self {
        self.pair(39, kind, path)
    }

    /// Replaces the resource with this key in the image by a descriptor of the CRIU process.
    pub(crate) fn inherit(&mut self, key: &str, descriptor: i32) -> &mut Self {
        let mut inherited = Message::default();
        inherited.text(1, key).number(2, descriptor);
        self.0.message(27, &inherited);
        self
    }

    /// Writes a message of two strings.
    fn pair(&mut self, field: u32, first: &str, second: &str) -> &mut Self {
        let mut pair = Message::default();
        pair.text(1, first).text(2, second);
        self.0.message(field, &pair);
        self
    }

    /// Encodes the request.
    pub(crate) fn request(&self, kind: Kind) -> Vec<u8> {
        let mut request = Message::default();
        request.number(1, kind as i32).message(2, &self.0);
        request.bytes().to_vec()
    }
}

/// Encodes the acknowledgement of a notification.
pub(crate) fn acknowledgement() -> Vec<u8> {
    let mut request = Message::default();
    request.number(1, Kind::Notify as i32).flag(3, true);
    request.bytes().to_vec()
}

/// A response of CRIU (`criu_resp`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) kind: i32,
    pub(crate) success: bool,
    /// The name of a notification.
    pub(crate) script: String,
    /// The pid of the init, in a notification or in the response to a restore.
    pub(crate) pid: i32,
    errno: i32,
    message: String,
}

impl Response {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut response = Self::default();
        for (field, value) in fields(bytes)? {
            match (field, value) {
                (1, _) => response.kind = value.number()?,
                (2, _) => response.success = value.number()? != 0,
                (4, Value::Bytes(restored)) => response.pid = number_in(restored, 1)?,
                (5, Value::Bytes(notification)) => {
                    response.pid = number_in(notification, 2).unwrap_or(0);
                    let script = fields(notification)?.into_iter().find(|(field, _)| *field == 1);
                    response.script = script.and_then(|(_, script)| script.text()).unwrap_or_default();
                }
                (7, _) => response.errno = value.number()?,
                (9, _) => response.message = value.text()?,
                _ => {}
            }
        }
        Some(response)
    }

    /// Returns an error if CRIU reports a failure.
    pub(crate) fn check(self) -> Result<Self, Failure> {
        if self.success {
            return Ok(self);
        }
        let cause = match self.errno {
            0 => String::new(),
            errno => format!(": {}", rustix::io::Errno::from_raw_os_error(errno)),
        };
        let message = if self.message.is_empty() { String::new() } else { format!(": {}", self.message.trim()) };
        Err(Failure::new(format!("criu failed{cause}{message}")))
    }
}

fn number_in(bytes: &[u8], number: u32) -> Option<i32> {
    fields(bytes)?.into_iter().find(|(field, _)| *field == number)?.1.number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_names_its_script_and_pid() {
        let mut notification = Message::default();
        notification.text(1, "setup-namespaces").number(2, 42);
        let mut message = Message::default();
        message.number(1, 6).flag(2, true).message(5, &notification);
        let response = Response::parse(message.bytes()).unwrap().check().unwrap();
        assert_eq!((response.kind, response.script.as_str(), response.pid), (6, "setup-namespaces", 42));
    }

    #[test]
    fn a_failure_contains_its_cause() {
        let mut response = Message::default();
        response.number(1, 1).flag(2, false).number(7, libc::EPERM).text(9, "no way");
        let failure = Response::parse(response.bytes()).unwrap().check().unwrap_err();
        assert!(failure.message.contains("not permitted") && failure.message.contains("no way"), "{failure}");
    }
}
