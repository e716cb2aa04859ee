//! Settings of registry hosts in containerd's layout: `<config_dir>/<host>/hosts.toml`, or Docker's certificates in the
//! same directory.
//!
//! ```toml
//! server = "https://registry-1.docker.io"     # tried last
//!
//! [host."https://mirror.example"]             # tried first, in the order of the file
//!   capabilities = ["pull", "resolve"]
//!   ca = "mirror.pem"
//!   client = [["client.cert", "client.key"]]
//!   skip_verify = false
//!   override_path = false
//!   [host."https://mirror.example".header]
//!     x-tenant = "nodes"
//! ```
//!
//! The directory of a host with a port is `host:port` or `host_port_`; `_default` applies to hosts without a directory.
//! The size of every file is limited. An error names the file and the key: pulls from that host fail until it is fixed.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use toml::{Spanned, de::DeTable, de::DeValue};

use crate::Error;

/// Largest `hosts.toml` or certificate, in bytes.
const FILE_MAX: u64 = 1024 * 1024;
/// Most hosts, certificates and headers of one file.
const ENTRIES_MAX: usize = 64;

/// The settings of one host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    /// Host or URL, as written.
    pub(crate) url: String,
    /// Whether it is the registry itself, not a mirror of it.
    pub(crate) is_server: bool,
    /// `None` allows everything that a pull needs.
    capabilities: Option<Vec<String>>,
    pub(crate) ca: Vec<PathBuf>,
    /// Client certificates and their keys. Without a key both are in one file.
    pub(crate) client: Vec<(PathBuf, Option<PathBuf>)>,
    pub(crate) skip_verify: bool,
    /// Whether the path of the URL is the complete path above the repository.
    pub(crate) override_path: bool,
    pub(crate) headers: HeaderMap,
}

impl Host {
    /// Whether blobs, and manifests by digest, may be requested from it.
    pub(crate) fn pulls(&self) -> bool {
        self.has_capability("pull")
    }

    /// Whether it may resolve tags.
    pub(crate) fn resolves(&self) -> bool {
        self.has_capability("resolve")
    }

    fn has_capability(&self, capability: &str) -> bool {
        self.capabilities.as_ref().is_none_or(|all| all.iter().any(|known| known == capability))
    }
}

/// Returns the directory of a host; `None` if there is none, not even the default one.
pub(crate) fn directory(config_dir: &Path, host: &str, with_default: bool) -> Option<PathBuf> {
    let containerd_name = host.rsplit_once(':').map(|(name, port)| format!("{name}_{port}_"));
    let names = containerd_name.into_iter().chain([host.to_owned()]).chain(with_default.then(|| "_default".to_owned()));
    names.filter(|name| !name.starts_with('.')).map(|name| config_dir.join(name)).find(|directory| directory.is_dir())
}

/// Reads the hosts in a directory, in the order in which they are to be tried.
pub(crate) fn read(directory: &Path, host: &str) -> Result<Vec<Host>, Error> {
    let path = directory.join("hosts.toml");
    match text(&path) {
        Ok(text) => File { path: &path, directory, text: &text }.hosts(host),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(vec![certificates(directory, host)?]),
        Err(error) => Err(Error::invalid(format!("read {}: {error}", path.display()))),
    }
}

/// Reads a file of at most [`FILE_MAX`] bytes.
pub(crate) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let meta = fs::metadata(path)?;
    match meta.is_file() && meta.len() <= FILE_MAX {
        true => fs::read(path),
        false => Err(io::Error::other(format!("not a regular file of at most {FILE_MAX} bytes"))),
    }
}

fn text(path: &Path) -> io::Result<String> {
    String::from_utf8(bytes(path)?).map_err(io::Error::other)
}

/// Reads Docker's layout: `*.crt` are certificate authorities, `*.cert` with `*.key` are client certificates.
fn certificates(directory: &Path, host: &str) -> Result<Host, Error> {
    let invalid = |reason: &dyn std::fmt::Display| {
        Error::invalid(format!("registry directory {}: {reason}", directory.display()))
    };
    let entries = fs::read_dir(directory).map_err(|e| invalid(&e))?.take(4 * ENTRIES_MAX);
    let mut names: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(|e| invalid(&e))?;
    names.sort();
    let mut settings = Host { url: host.to_owned(), is_server: true, ..Host::default() };
    for path in names {
        match path.extension().and_then(|end| end.to_str()) {
            Some("crt") => settings.ca.push(path),
            Some("cert") => {
                let key = path.with_extension("key");
                if !key.is_file() {
                    return Err(invalid(&format_args!("{} has no key ({})", path.display(), key.display())));
                }
                settings.client.push((path, Some(key)));
            }
            _ => {}
        }
    }
    Ok(settings)
}

/// A `hosts.toml` that is being parsed.
struct File<'a> {
    path: &'a Path,
    directory: &'a Path,
    text: &'a str,
}

type Item<'a> = Spanned<DeValue<'a>>;

impl File<'_> {
    fn hosts(&self, host: &str) -> Result<Vec<Host>, Error> {
        let table = DeTable::parse(self.text)
            .map_err(|e| self.invalid(e.span().map_or(0, |s| s.start), "", e.message().trim_end()))?;
        let table = table.get_ref();
        let mut mirrors: Vec<_> = match table.get("host") {
            None => Vec::new(),
            Some(hosts) => {
                let hosts = hosts.get_ref().as_table().ok_or_else(|| self.expected(hosts, "host", "a table"))?;
                hosts.iter().collect()
            }
        };
        // The table does not preserve the order of the file.
        mirrors.sort_by_key(|(name, _)| name.span().start);
        if mirrors.len() > ENTRIES_MAX {
            return Err(self.invalid(0, "host", &format!("{} hosts, at most {ENTRIES_MAX}", mirrors.len())));
        }
        let mut all = Vec::new();
        for (name, item) in mirrors {
            let key = format!("host.{:?}", name.get_ref());
            let table = item.get_ref().as_table().ok_or_else(|| self.expected(item, &key, "a table"))?;
            all.push(Host { url: name.get_ref().to_string(), ..self.host(table, &key, false)? });
        }
        let server = match table.get("server") {
            Some(item) => self.string(item, "server")?.to_owned(),
            None => host.to_owned(),
        };
        all.push(Host { url: server, is_server: true, ..self.host(table, "", true)? });
        Ok(all)
    }

    fn host(&self, table: &DeTable<'_>, above: &str, top: bool) -> Result<Host, Error> {
        let mut host = Host::default();
        for (name, item) in table {
            let key = match above {
                "" => name.get_ref().to_string(),
                above => format!("{above}.{}", name.get_ref()),
            };
            match name.get_ref().as_ref() {
                "server" | "host" if top => {}
                "capabilities" => host.capabilities = Some(self.capabilities(item, &key)?),
                "ca" => host.ca = self.paths(item, &key)?,
                "client" => host.client = self.pairs(item, &key)?,
                "skip_verify" => host.skip_verify = self.boolean(item, &key)?,
                "override_path" => host.override_path = self.boolean(item, &key)?,
                "header" => host.headers = self.headers(item, &key)?,
                // A key of containerd that is ignored: this client has its own timeout.
                "dial_timeout" => drop(self.string(item, &key)?),
                _ => return Err(self.invalid(name.span().start, &key, "no such key")),
            }
        }
        Ok(host)
    }

    fn capabilities(&self, item: &Item<'_>, key: &str) -> Result<Vec<String>, Error> {
        let words = self.strings(item, key)?;
        match words.iter().find(|word| !["pull", "resolve", "push", "referrers"].contains(&word.as_str())) {
            Some(word) => {
                Err(self.invalid(item.span().start, key, &format!("{word:?} is not one of pull, resolve, push")))
            }
            None => Ok(words),
        }
    }

    fn headers(&self, item: &Item<'_>, key: &str) -> Result<HeaderMap, Error> {
        let table = item.get_ref().as_table().ok_or_else(|| self.expected(item, key, "a table"))?;
        let mut headers = HeaderMap::new();
        for (name, value) in table {
            let key = format!("{key}.{:?}", name.get_ref());
            let name: HeaderName = name
                .get_ref()
                .parse()
                .map_err(|_| self.invalid(name.span().start, &key, "not a valid name of a header"))?;
            for text in self.strings(value, &key)? {
                // The value may be a secret, so the message leaves it out.
                let text = HeaderValue::from_str(&text)
                    .map_err(|_| self.invalid(value.span().start, &key, "not a valid value of a header"))?;
                headers.append(&name, text);
            }
        }
        Ok(headers)
    }

    /// Reads one or several paths, which are relative to the directory.
    fn paths(&self, item: &Item<'_>, key: &str) -> Result<Vec<PathBuf>, Error> {
        Ok(self.strings(item, key)?.into_iter().map(|path| self.directory.join(path)).collect())
    }

    /// Reads `"a.pem"`, `["a.pem", "b.pem"]` or `[["a.cert", "a.key"], …]`.
    fn pairs(&self, item: &Item<'_>, key: &str) -> Result<Vec<(PathBuf, Option<PathBuf>)>, Error> {
        let DeValue::Array(items) = item.get_ref() else {
            return Ok(vec![(self.directory.join(self.string(item, key)?), None)]);
        };
        let pair = |item: &Item<'_>| {
            let paths = self.paths(item, key)?;
            match &paths[..] {
                [both] => Ok((both.clone(), None)),
                [cert, key] => Ok((cert.clone(), Some(key.clone()))),
                _ => Err(self.expected(item, key, "a certificate and its key")),
            }
        };
        items.iter().map(pair).collect()
    }

    /// Reads a string or a list of strings.
    fn strings(&self, item: &Item<'_>, key: &str) -> Result<Vec<String>, Error> {
        match item.get_ref() {
            DeValue::Array(items) if items.len() <= ENTRIES_MAX => {
                items.iter().map(|item| self.string(item, key).map(str::to_owned)).collect()
            }
            DeValue::Array(_) => Err(self.expected(item, key, "a shorter list")),
            _ => Ok(vec![self.string(item, key)?.to_owned()]),
        }
    }

    fn string<'b>(&self, item: &'b Item<'_>, key: &str) -> Result<&'b str, Error> {
        item.get_ref().as_str().ok_or_else(|| self.expected(item, key, "a string"))
    }

    fn boolean(&self, item: &Item<'_>, key: &str) -> Result<bool, Error> {
        item.get_ref().as_bool().ok_or_else(|| self.expected(item, key, "true or false"))
    }

    fn expected(&self, item: &Item<'_>, key: &str, kind: &str) -> Error {
        self.invalid(item.span().start, key, &format!("{kind} is expected"))
    }

    fn invalid(&self, at: usize, key: &str, reason: &str) -> Error {
        let line = self.text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
        let key = if key.is_empty() { String::new() } else { format!("{key}: ") };
        Error::invalid(format!(
            "registry configuration {}:{line}: {key}{}",
            self.path.display(),
            reason.replace('\n', "; ")
        ))
    }
}

#[cfg(test)]
#[path = "hosts/tests.rs"]
mod tests;
