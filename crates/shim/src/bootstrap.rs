use prost::Message;
use serde::{Deserialize, Serialize};

use crate::{
    address::Address,
    error::{Error, ErrorKind},
    messages::BootstrapResult,
};

/// Maximum number of bytes of the output of a command of a shim.
pub const OUTPUT_MAX: usize = 64 << 10;
/// Newest version of the task service that is understood.
const VERSION_MAX: i32 = 3;

/// What `start` returns: how the shim is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bootstrap {
    /// Version of the task service, 2 or 3.
    pub version: u8,
    /// Where the shim serves it.
    pub address: Address,
}

/// The output of `start` as JSON (containerd 2.0).
#[derive(Deserialize)]
struct Json {
    version: i32,
    address: String,
    #[serde(default)]
    protocol: String,
}

impl Bootstrap {
    /// Parses the output of `start`: a `BootstrapResult`, as protobuf (containerd 2.3) or JSON (2.0), or only an address.
    ///
    /// # Errors
    /// `Protocol` if it is none of these, or names a version or a protocol that is not supported.
    pub fn parse(output: &[u8]) -> Result<Self, Error> {
        let refuse = |cause: String| Error::new(ErrorKind::Protocol, "read the address of the shim", cause);
        if output.len() > OUTPUT_MAX {
            return Err(refuse(format!("more than {OUTPUT_MAX} bytes of output")));
        }
        let (version, address, protocol) = fields(output).map_err(refuse)?;
        if !protocol.is_empty() && protocol != "ttrpc" {
            return Err(refuse(format!("the shim serves {protocol:?}; only ttrpc is supported")));
        }
        let version = match version {
            2..=VERSION_MAX => u8::try_from(version).unwrap_or_default(),
            other => return Err(refuse(format!("version {other} of the task service is not supported; 2 and 3 are"))),
        };
        Ok(Self { version, address: Address::parse(&address).map_err(refuse)? })
    }

    /// Returns the full name of the task service.
    pub(crate) fn service(&self) -> &'static str {
        match self.version {
            2 => "containerd.task.v2.Task",
            _ => "containerd.task.v3.Task",
        }
    }
}

/// Returns version, address and protocol.
fn fields(output: &[u8]) -> Result<(i32, String, String), String> {
    if let Ok(BootstrapResult { version, address, protocol }) = BootstrapResult::decode(output)
        && version > 0
        && !address.is_empty()
    {
        return Ok((version, address, protocol));
    }
    let text = std::str::from_utf8(output).map_err(|_| "its output is neither text nor a message".to_owned())?.trim();
    match serde_json::from_str::<Json>(text) {
        Ok(Json { version, address, protocol }) => Ok((version, address, protocol)),
        // Some shims write more than the address; it is in the last line.
        Err(_) => {
            let address = text.lines().last().unwrap_or_default();
            match address.is_empty() {
                true => Err("it wrote no address".to_owned()),
                false => Ok((2, address.to_owned(), String::new())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(version: u8, path: &str) -> Bootstrap {
        Bootstrap { version, address: Address::Path(path.into()) }
    }

    #[test]
    fn all_forms_of_the_answer_are_understood() {
        let message =
            BootstrapResult { version: 3, address: "unix:///run/s".into(), protocol: "ttrpc".into() }.encode_to_vec();
        assert_eq!(Bootstrap::parse(&message), Ok(at(3, "/run/s")));
        let json = br#"{"version":2,"address":"unix:///run/s","protocol":"ttrpc"}"#;
        assert_eq!(Bootstrap::parse(json), Ok(at(2, "/run/s")));
        assert_eq!(Bootstrap::parse(b"unix:///run/s\n"), Ok(at(2, "/run/s")));
    }

    #[test]
    fn other_answers_are_refused() {
        for bad in [
            &b""[..],
            b"\xff\xfe",
            br#"{"version":9,"address":"unix:///run/s"}"#,
            br#"{"version":3,"address":"unix:///run/s","protocol":"grpc"}"#,
            br#"{"version":3,"address":"vsock://3:1"}"#,
            &[b'x'; OUTPUT_MAX + 1],
        ] {
            let error = Bootstrap::parse(bad).expect_err("refused");
            assert_eq!(error.kind, ErrorKind::Protocol);
        }
    }
}
