//! Requests and answers, by the numbers of CRIU's `images/rpc.proto`.

use super::wire::{Message, Value, fields};
use crate::failure::Failure;

/// What is asked for (`criu_req_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Dump = 1,
    Restore = 2,
    PreDump = 4,
    /// CRIU asks, and waits for an answer.
    Notify = 6,
}

/// `criu_opts`. A setter for each that is used.
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
    /// A descriptor of the asking process.
    images_directory(i32) = number 1;
    pid(i32) = number 2;
    leave_running(bool) = flag 3;
    external_unix_sockets(bool) = flag 4;
    tcp_established(bool) = flag 5;
    /// Devices may be found under other paths than before.
    evasive_devices(bool) = flag 6;
    shell_job(bool) = flag 7;
    file_locks(bool) = flag 8;
    log_level(i32) = number 9;
    /// A name in the work directory.
    log_file(&str) = text 10;
    notify(bool) = flag 12;
    root(&str) = text 13;
    /// Relative to the images.
    parent_images(&str) = text 14;
    track_memory(bool) = flag 15;
    auto_dedup(bool) = flag 16;
    /// A descriptor of the asking process.
    work_directory(i32) = number 17;
    link_remap(bool) = flag 18;
    manage_cgroups(bool) = flag 24;
    /// The restored init is a child of the asking process.
    sibling(bool) = flag 26;
    cgroup_mode(i32) = number 34;
    external(&str) = text 37;
    /// Namespaces (`CLONE_NEW*`) that are made without their contents.
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

    /// Where the cgroups of a controller (or of v2: "") are restored.
    pub(crate) fn cgroup_root(&mut self, controller: &str, path: &str) -> &mut Self {
        self.pair(25, controller, path)
    }

    /// A mount that is not dumped (its place, a name), or is bound again (the name, its source).
    pub(crate) fn mount(&mut self, key: &str, value: &str) -> &mut Self {
        self.pair(23, key, value)
    }

    /// A namespace to restore into.
    pub(crate) fn join(&mut self, kind: &str, path: &str) -> &mut Self {
        self.pair(39, kind, path)
    }

    /// What the image knows under this key is the descriptor of the CRIU process.
    pub(crate) fn inherit(&mut self, key: &str, descriptor: i32) -> &mut Self {
        let mut inherited = Message::default();
        inherited.text(1, key).number(2, descriptor);
        self.0.message(27, &inherited);
        self
    }

    /// Two texts.
    fn pair(&mut self, field: u32, first: &str, second: &str) -> &mut Self {
        let mut pair = Message::default();
        pair.text(1, first).text(2, second);
        self.0.message(field, &pair);
        self
    }

    /// The whole request.
    pub(crate) fn request(&self, kind: Kind) -> Vec<u8> {
        let mut request = Message::default();
        request.number(1, kind as i32).message(2, &self.0);
        request.bytes().to_vec()
    }
}

/// What answers a notification.
pub(crate) fn acknowledgement() -> Vec<u8> {
    let mut request = Message::default();
    request.number(1, Kind::Notify as i32).flag(3, true);
    request.bytes().to_vec()
}

/// `criu_resp`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) kind: i32,
    pub(crate) success: bool,
    /// Of a notification: what it is about.
    pub(crate) script: String,
    /// Of a notification or a restore: the init's.
    pub(crate) pid: i32,
    errno: i32,
    message: String,
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut answer = Self::default();
        for (field, value) in fields(bytes)? {
            match (field, value) {
                (1, _) => answer.kind = value.number()?,
                (2, _) => answer.success = value.number()? != 0,
                (4, Value::Bytes(restored)) => answer.pid = number_in(restored, 1)?,
                (5, Value::Bytes(notice)) => {
                    answer.pid = number_in(notice, 2).unwrap_or(0);
                    let script = fields(notice)?.into_iter().find(|(field, _)| *field == 1);
                    answer.script = script.and_then(|(_, script)| script.text()).unwrap_or_default();
                }
                (7, _) => answer.errno = value.number()?,
                (9, _) => answer.message = value.text()?,
                _ => {}
            }
        }
        Some(answer)
    }

    /// Whether CRIU did it.
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

fn number_in(bytes: &[u8], wanted: u32) -> Option<i32> {
    fields(bytes)?.into_iter().find(|(field, _)| *field == wanted)?.1.number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_names_its_script_and_pid() {
        let mut notice = Message::default();
        notice.text(1, "setup-namespaces").number(2, 42);
        let mut response = Message::default();
        response.number(1, 6).flag(2, true).message(5, &notice);
        let answer = Answer::parse(response.bytes()).unwrap().check().unwrap();
        assert_eq!((answer.kind, answer.script.as_str(), answer.pid), (6, "setup-namespaces", 42));
    }

    #[test]
    fn a_failure_tells_its_cause() {
        let mut response = Message::default();
        response.number(1, 1).flag(2, false).number(7, libc::EPERM).text(9, "no way");
        let failure = Answer::parse(response.bytes()).unwrap().check().unwrap_err();
        assert!(failure.message.contains("not permitted") && failure.message.contains("no way"), "{failure}");
    }
}
