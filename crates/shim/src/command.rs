use prost::Message;

use crate::{
    bootstrap::OUTPUT_MAX,
    error::{Error, ErrorKind},
    messages::{BootstrapParams, DeleteResponse, Extension},
    options::Options,
    task::Exit,
};

/// Namespace of containerd in which Kubernetes' containers are; part of the names that shims choose.
const NAMESPACE: &str = "k8s.io";

/// What the commands of a shim need to know.
#[derive(Clone, Debug)]
pub struct CommandInputs<'a> {
    /// Container id.
    pub id: &'a str,
    /// Absolute path of the bundle, which is the working directory of the command and whose name is the container id.
    pub bundle: &'a str,
    /// Path of the socket that receives events, see [`crate::events`].
    pub events: &'a str,
    /// Absolute path of a program that publishes events: `PROGRAM --address A publish --topic T --namespace N`.
    pub publisher: &'a str,
    /// Directory for the sockets of shims. Shims before containerd 2.3 ignore it and use `/run/containerd/s`.
    pub socket_dir: Option<&'a str>,
    /// Options of the shim.
    pub options: Option<&'a Options>,
}

/// A command of a shim, without the program: `start` or `delete`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables in addition to those of the node, `NAME=value`.
    pub environment: Vec<String>,
    /// Its standard input.
    pub stdin: Vec<u8>,
}

impl Command {
    /// Returns the command that starts a shim for a container, or finds the one of its pod.
    pub fn start(inputs: &CommandInputs<'_>) -> Self {
        let CommandInputs { id, events, publisher, socket_dir, options, .. } = inputs;
        let params = BootstrapParams {
            instance_id: (*id).to_owned(),
            namespace: NAMESPACE.to_owned(),
            containerd_version: env!("CARGO_PKG_VERSION").to_owned(),
            containerd_ttrpc_address: (*events).to_owned(),
            containerd_grpc_address: (*events).to_owned(),
            containerd_binary: (*publisher).to_owned(),
            extensions: options.map(|options| Extension { value: Some(options.to_any()) }).into_iter().collect(),
            socket_dir: socket_dir.map(str::to_owned),
        };
        Self { stdin: params.encode_to_vec(), ..Self::new(inputs, &[], "start") }
    }

    /// Returns the command that removes what a container left behind whose shim died. Its output is for [`parse_exit`].
    pub fn delete(inputs: &CommandInputs<'_>) -> Self {
        Self::new(inputs, &["-bundle", inputs.bundle], "delete")
    }

    fn new(inputs: &CommandInputs<'_>, options: &[&str], verb: &str) -> Self {
        let CommandInputs { id, events, publisher, .. } = inputs;
        let words = ["-namespace", NAMESPACE, "-address", events, "-publish-binary", publisher, "-id", id];
        let words = words.iter().chain(options).chain([&verb]);
        // As containerd sets them.
        let environment = [
            "GOMAXPROCS=2".to_owned(),
            "MAX_SHIM_VERSION=3".to_owned(),
            format!("TTRPC_ADDRESS={events}"),
            format!("GRPC_ADDRESS={events}"),
            format!("NAMESPACE={NAMESPACE}"),
        ];
        Self {
            arguments: words.map(|word| (*word).to_owned()).collect(),
            environment: environment.into(),
            stdin: Vec::new(),
        }
    }
}

/// Parses the output of `delete`: the exit status of the container.
///
/// # Errors
/// `Protocol` if it is not a valid message.
pub fn parse_exit(output: &[u8]) -> Result<Exit, Error> {
    let refuse = |cause: String| Error::new(ErrorKind::Protocol, "read the output of the command delete", cause);
    if output.len() > OUTPUT_MAX {
        return Err(refuse(format!("more than {OUTPUT_MAX} bytes")));
    }
    let DeleteResponse { exit_status, exited_at, .. } =
        DeleteResponse::decode(output).map_err(|error| refuse(error.to_string()))?;
    Ok(Exit::new(exit_status, exited_at.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Timestamp;

    const INPUTS: CommandInputs<'_> = CommandInputs {
        id: "web",
        bundle: "/run/b/web",
        events: "/run/events",
        publisher: "/usr/bin/pinion",
        socket_dir: None,
        options: None,
    };

    #[test]
    fn commands_are_those_of_containerd() {
        let Command { arguments, environment, stdin } = Command::start(&INPUTS);
        let common = "-namespace k8s.io -address /run/events -publish-binary /usr/bin/pinion -id web";
        assert_eq!(arguments.join(" "), format!("{common} start"));
        assert!(environment.contains(&"TTRPC_ADDRESS=/run/events".to_owned()));
        let params = BootstrapParams::decode(&*stdin).expect("parameters");
        assert_eq!((params.instance_id.as_str(), params.namespace.as_str()), ("web", "k8s.io"));
        let Command { arguments, stdin, .. } = Command::delete(&INPUTS);
        assert_eq!(arguments.join(" "), format!("{common} -bundle /run/b/web delete"));
        assert!(stdin.is_empty());
    }

    #[test]
    fn the_output_of_delete_is_an_exit_status() {
        let exited_at = Some(Timestamp { seconds: 5, nanos: 7 });
        let output = DeleteResponse { pid: 1, exit_status: 137, exited_at }.encode_to_vec();
        assert_eq!(parse_exit(&output), Ok(Exit { code: 137, at: 5_000_000_007 }));
        assert!(parse_exit(b"not a message").is_err());
        assert!(parse_exit(&[0; OUTPUT_MAX + 1]).is_err());
    }
}
