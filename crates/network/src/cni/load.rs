//! Loads a network from a file of the CNI directory, with the plugins in the directory of the network's name.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{Chain, chain};

/// Longest configuration that is read, in bytes; usual ones have a few KiB.
const CONFIG_MAX: u64 = 1 << 20;
/// Maximum number of files of a directory.
const FILES_MAX: usize = 256;

/// Object and reason of a failure.
pub(super) type Failure = (String, String);

/// Returns the configurations of a directory in the order of their names: files with one of these extensions. A
/// directory that does not exist counts as empty.
pub(super) fn files(directory: &Path, extensions: &[&str]) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let extension = path.extension().and_then(|e| e.to_str());
        if extension.is_some_and(|extension| extensions.contains(&extension)) && path.is_file() {
            files.push(path);
        }
        if files.len() > FILES_MAX {
            return Err(io::Error::other(format!("it has more than {FILES_MAX} configurations")));
        }
    }
    files.sort();
    Ok(files)
}

/// A file that was loaded, and the directory and files that belong to it.
pub(super) struct Loaded {
    pub(super) chain: Result<Chain, Failure>,
    pub(super) parts: Vec<PathBuf>,
}

/// Loads the network of a file.
pub(super) fn load(file: &Path) -> Loaded {
    let mut parts = Vec::new();
    let chain = load_into(file, &mut parts);
    Loaded { chain, parts }
}

fn load_into(file: &Path, parts: &mut Vec<PathBuf>) -> Result<Chain, Failure> {
    let failed = |reason: String| (format!("cni config {}", file.display()), reason);
    let value = chain::as_list(read(file)?).map_err(failed)?;
    let list = match chain::plugin_directory(&value).map_err(failed)? {
        Some(name) => {
            let directory = file.parent().unwrap_or(Path::new("/")).join(name);
            add_plugins(value, &directory, parts)?
        }
        None => value,
    };
    Chain::parse(list).map(|chain| chain.of_file(file)).map_err(failed)
}

/// Appends the plugins that the `*.conf` files of a directory configure to a list (CNI 1.1.0).
fn add_plugins(mut list: Value, directory: &Path, parts: &mut Vec<PathBuf>) -> Result<Value, Failure> {
    let failed = |e: io::Error| (format!("CNI directory {}", directory.display()), e.to_string());
    let files = files(directory, &["conf"]).map_err(failed)?;
    parts.push(directory.to_owned());
    for file in files {
        let plugin = read(&file)?;
        parts.push(file);
        match &mut list["plugins"] {
            Value::Array(plugins) => plugins.push(plugin),
            plugins => *plugins = Value::Array(vec![plugin]),
        }
    }
    Ok(list)
}

fn read(file: &Path) -> Result<Value, Failure> {
    let failed = |reason: String| (format!("cni config {}", file.display()), reason);
    let read = fs::metadata(file).and_then(|data| match data.len() {
        0..=CONFIG_MAX => fs::read(file),
        _ => Err(io::Error::other("longer than 1 MiB")),
    });
    let text = read.map_err(|e| failed(e.to_string()))?;
    serde_json::from_slice(&text).map_err(|e| failed(format!("not JSON: {e}")))
}
