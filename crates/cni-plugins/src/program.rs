//! The plugin program: parameters from the environment, the configuration from standard input, the result to standard
//! output.

use std::{
    io::{self, Read, Write},
    path::Path,
};

use netns::Namespace;
use serde_json::{Value, json};

use crate::{Announcer, Error, NftSocket, PluginType, Request, VERSIONS};

/// Longest configuration that is read, in bytes.
const CONFIG_MAX: u64 = 4 << 20;
/// Version of error results of requests whose version is not known.
const NEWEST: &str = VERSIONS[VERSIONS.len() - 1];

/// What an engine that runs plugins in its process knows besides the parameters of the specification. A program uses the
/// default.
#[derive(Debug, Default)]
pub struct Context {
    /// Whether the container has no address and no rule of the network yet, so that existing ones need not be read.
    pub is_new: bool,
    /// The pod's namespace, for a `DEL` after its path was removed; otherwise `CNI_NETNS` is opened.
    pub namespace: Option<Namespace>,
    /// Socket for nftables in the node's namespace.
    pub nft: NftSocket,
    /// Announces addresses of pods.
    pub announcer: Announcer,
}

/// Runs one command of the plugin and returns the exit code. `variable` returns environment variables.
pub fn run(
    kind: PluginType,
    context: Context,
    variable: &dyn Fn(&'static str) -> Option<String>,
    input: impl Read,
    mut output: impl Write,
) -> u8 {
    let mut version = NEWEST.to_owned();
    let outcome = respond(kind, context, variable, input, &mut version);
    let (text, code) = match outcome {
        Ok(None) => return 0,
        Ok(Some(value)) => (value, 0),
        Err(error) => (error.to_json(&version), 1),
    };
    // In one call. An engine that does not read the result is of no concern.
    let _ = output.write_all(format!("{text:#}\n").as_bytes());
    code
}

fn respond(
    kind: PluginType,
    context: Context,
    variable: &dyn Fn(&'static str) -> Option<String>,
    input: impl Read,
    version: &mut String,
) -> Result<Option<Value>, Error> {
    let required = |name: &'static str| {
        let missing = || Error::Environment { variable: name, reason: "missing".into() };
        variable(name).filter(|value| !value.is_empty()).ok_or_else(missing)
    };
    let command = required("CNI_COMMAND")?;
    if command == "VERSION" {
        return Ok(Some(json!({"cniVersion": NEWEST, "supportedVersions": kind.versions()})));
    }
    let mut request = read(kind, input, version)?;
    let directories = variable("CNI_PATH").unwrap_or_default();
    (request.is_new, request.nft, request.announcer) = (context.is_new, context.nft, context.announcer);
    request.directories = std::env::split_paths(&directories).collect();
    must_have(&request, &command)?;
    let path = variable("CNI_NETNS").unwrap_or_default();
    if matches!(command.as_str(), "ADD" | "DEL" | "CHECK") {
        let opened = context.namespace.map_or_else(|| open(&path, command == "DEL"), |namespace| Ok(Some(namespace)));
        let namespace = match opened? {
            Some(namespace) if !is_overridden(variable) => Some(not_own(namespace)?),
            namespace => namespace,
        };
        let (container, interface) = (required("CNI_CONTAINERID")?, required("CNI_IFNAME")?);
        request = request.attachment(&container, &interface, namespace, &path)?;
        request = request.with_arguments(&variable("CNI_ARGS").unwrap_or_default())?;
    }
    match command.as_str() {
        "ADD" => return kind.attach(&request).map(|result| Some(result.to_json(request.version()))),
        "DEL" => kind.detach(&request)?,
        "CHECK" => kind.check(&request)?,
        "STATUS" => kind.status(&request)?,
        "GC" => kind.collect(&request)?,
        other => {
            let reason = format!("{other:?} is not one of ADD, DEL, CHECK, STATUS, GC, VERSION");
            return Err(Error::Environment { variable: "CNI_COMMAND", reason });
        }
    }
    Ok(None)
}

fn read(kind: PluginType, input: impl Read, version: &mut String) -> Result<Request, Error> {
    let mut text = Vec::new();
    let read = input.take(CONFIG_MAX + 1).read_to_end(&mut text);
    let length = read.map_err(|e| Error::kernel("read", "configuration", e))?;
    if u64::try_from(length).unwrap_or(u64::MAX) > CONFIG_MAX {
        return Err(Error::Decode("longer than 4 MiB".into()));
    }
    let value: Value = serde_json::from_slice(&text).map_err(|e| Error::Decode(e.to_string()))?;
    if let Some(stated) = value.get("cniVersion").and_then(Value::as_str)
        && VERSIONS.contains(&stated)
    {
        stated.clone_into(version);
    }
    let request = Request::new(value)?;
    if !kind.versions().contains(&request.version()) {
        let reason = format!("not supported by {}; supported: {}", kind.name(), kind.versions().join(", "));
        return Err(Error::Version { version: request.version().to_owned(), reason });
    }
    Ok(request)
}

/// Refuses a command that the version of the configuration does not have.
fn must_have(request: &Request, command: &str) -> Result<(), Error> {
    let since = match command {
        "CHECK" => "0.4.0",
        "STATUS" | "GC" => "1.1.0",
        _ => return Ok(()),
    };
    if request.version() < since {
        let reason = format!("has no {command}, which is new in {since}");
        return Err(Error::Version { version: request.version().to_owned(), reason });
    }
    Ok(())
}

/// Opens the pod's namespace. For `DEL` it may be gone: its path is missing, or is not a namespace any longer.
fn open(path: &str, may_be_gone: bool) -> Result<Option<Namespace>, Error> {
    if path.is_empty() {
        let reason = "missing".into();
        return if may_be_gone { Ok(None) } else { Err(Error::Environment { variable: "CNI_NETNS", reason }) };
    }
    match Namespace::open(Path::new(path)) {
        Ok(namespace) => Ok(Some(namespace)),
        Err(netns::Error::Kernel { cause, .. })
            if may_be_gone && matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) =>
        {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Refuses the namespace of this program: it would change the node. `CNI_NETNS_OVERRIDE` permits it.
fn not_own(namespace: Namespace) -> Result<Namespace, Error> {
    use std::os::fd::AsFd as _;
    let own = Namespace::open(Path::new("/proc/self/ns/net"))?;
    let inode = |fd: rustix::fd::BorrowedFd<'_>| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    match (inode(namespace.as_fd()), inode(own.as_fd())) {
        (Ok(one), Ok(other)) if one == other => {
            let reason = "is the network namespace of the node".into();
            Err(Error::Environment { variable: "CNI_NETNS", reason })
        }
        _ => Ok(namespace),
    }
}

fn is_overridden(variable: &dyn Fn(&'static str) -> Option<String>) -> bool {
    variable("CNI_NETNS_OVERRIDE").is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"))
}
