//! The command line.

use std::{error::Error, ffi::OsString, net::SocketAddr, path::PathBuf, str::FromStr};

/// What to serve, and where.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Directory of the pins.
    pub(crate) pins: PathBuf,
    /// Address of the echo service in each namespace.
    pub(crate) echo: SocketAddr,
    /// Address of the HTTP service in each namespace.
    pub(crate) http: SocketAddr,
    /// Address of the metrics page in the namespace of this process; none without one.
    pub(crate) metrics: Option<SocketAddr>,
    /// Directory of the files to serve.
    pub(crate) content: Option<PathBuf>,
    /// Number of threads that serve; zero: one loop on the first thread.
    pub(crate) shards: usize,
    /// Most connections of a tenant.
    pub(crate) connections: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pins: PathBuf::from("/run/netns"),
            echo: SocketAddr::from(([0, 0, 0, 0], 7)),
            http: SocketAddr::from(([0, 0, 0, 0], 80)),
            metrics: None,
            content: None,
            shards: 0,
            connections: 256,
        }
    }
}

impl Options {
    /// Parses `--name value` pairs.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Self, Box<dyn Error>> {
        const NAMES: &str = "--pins DIRECTORY, --echo ADDRESS, --http ADDRESS, --metrics ADDRESS, --content DIRECTORY, \
                             --shards NUMBER, --connections NUMBER";
        let mut options = Self::default();
        while let Some(name) = arguments.next() {
            let name = name.to_string_lossy().into_owned();
            let value = arguments.next().ok_or_else(|| format!("{name}: a value is missing; options: {NAMES}"))?;
            match name.as_str() {
                "--pins" => options.pins = value.into(),
                "--echo" => options.echo = parse(&name, &value)?,
                "--http" => options.http = parse(&name, &value)?,
                "--metrics" => options.metrics = Some(parse(&name, &value)?),
                "--content" => options.content = Some(value.into()),
                "--shards" => options.shards = parse(&name, &value)?,
                "--connections" => options.connections = parse(&name, &value)?,
                _ => return Err(format!("{name} is not an option; options: {NAMES}").into()),
            }
        }
        if options.shards > 1024 || options.connections == 0 {
            return Err("--shards is at most 1024, --connections at least 1".into());
        }
        Ok(options)
    }
}

fn parse<T: FromStr>(name: &str, value: &OsString) -> Result<T, String> {
    let value = value.to_string_lossy();
    value.parse().map_err(|_| format!("{name} {value}: not a valid value"))
}
