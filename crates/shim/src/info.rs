use prost::Message;

use crate::{
    bootstrap::OUTPUT_MAX,
    error::{Error, ErrorKind},
    messages::RuntimeInfo,
    options::Options,
};

/// What a shim reports about itself: `SHIM -info`, since containerd 2.0. It starts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Its name, for example `io.containerd.runc.v2`.
    pub name: String,
    /// Its version; empty if it reports none.
    pub version: String,
    /// Features of its OCI runtime as JSON (`features.md` of the runtime specification), if it has one that reports them.
    pub features: Option<Vec<u8>>,
}

impl Info {
    /// Arguments of the command.
    pub const ARGUMENTS: [&str; 1] = ["-info"];

    /// Returns the standard input of the command.
    pub fn stdin(options: Option<&Options>) -> Vec<u8> {
        options.map(|options| options.to_any().encode_to_vec()).unwrap_or_default()
    }

    /// Parses the output of the command.
    ///
    /// # Errors
    /// `Protocol` for anything but a `RuntimeInfo` of at most [`OUTPUT_MAX`] bytes.
    pub fn parse(output: &[u8]) -> Result<Self, Error> {
        let refuse = |cause: String| Error::new(ErrorKind::Protocol, "parse the output of -info of a shim", cause);
        if output.len() > OUTPUT_MAX {
            return Err(refuse(format!("it has {} bytes; the maximum is {OUTPUT_MAX}", output.len())));
        }
        let info = RuntimeInfo::decode(output).map_err(|error| refuse(error.to_string()))?;
        Ok(Self {
            name: info.name,
            version: info.version.unwrap_or_default().version,
            features: info.features.map(|features| features.value),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `containerd-shim-runc-v2 -info`, shortened.
    const OUTPUT: &[u8] =
        b"\x0a\x15io.containerd.runc.v2\x12\x0f\x0a\x06v2.4.2\x12\x05abcde\x22\x08\x0a\x02f/\x12\x02{}";

    #[test]
    fn the_output_of_a_shim_is_parsed_and_garbage_is_refused() {
        let expected =
            Info { name: "io.containerd.runc.v2".into(), version: "v2.4.2".into(), features: Some(b"{}".to_vec()) };
        assert_eq!(Info::parse(OUTPUT), Ok(expected));
        assert_eq!(Info::parse(b""), Ok(Info::default()));
        for garbage in [b"usage: shim".to_vec(), vec![0; OUTPUT_MAX + 1], OUTPUT[..20].to_vec()] {
            assert_eq!(Info::parse(&garbage).map_err(|error| error.kind), Err(ErrorKind::Protocol));
        }
    }
}
