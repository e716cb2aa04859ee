//! The files that are served, in memory: no request waits for a disk.

use std::{collections::HashMap, error::Error, fs, path::Path, sync::Arc};

/// Most bytes of all files.
const BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Most files.
const FILES_MAX: usize = 1024;
/// Levels of directories.
const DEPTH_MAX: usize = 8;

/// A file.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// Its media type.
    pub(crate) kind: &'static str,
    /// Its content.
    pub(crate) body: Arc<[u8]>,
}

/// Files by their paths, which begin with `/`.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pages: HashMap<String, Page>,
}

impl Content {
    /// Reads the regular files of a directory and those below it.
    pub(crate) fn load(directory: &Path) -> Result<Self, Box<dyn Error>> {
        let (mut content, mut bytes) = (Self::default(), 0);
        content.add(directory, "/", &mut bytes, 0)?;
        Ok(content)
    }

    fn add(&mut self, directory: &Path, prefix: &str, bytes: &mut u64, depth: usize) -> Result<(), Box<dyn Error>> {
        let fail = |e: std::io::Error| format!("read {}: {e}", directory.display());
        for entry in fs::read_dir(directory).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let (path, found) = (entry.path(), entry.metadata().map_err(fail)?);
            if found.is_dir() && depth < DEPTH_MAX {
                self.add(&path, &format!("{prefix}{name}/"), bytes, depth + 1)?;
            } else if found.is_file() {
                *bytes += found.len();
                if *bytes > BYTES_MAX || self.pages.len() == FILES_MAX {
                    return Err(format!("{}: more than {FILES_MAX} files or 64 MiB", directory.display()).into());
                }
                let body = fs::read(&path).map_err(|e| format!("read {}: {e}", path.display()))?;
                let kind = media_type(&name);
                self.pages.insert(format!("{prefix}{name}"), Page { kind, body: body.into() });
            }
        }
        Ok(())
    }

    /// Returns the file of a path; `index.html` for a directory.
    pub(crate) fn page(&self, path: &str) -> Option<Page> {
        let index = || path.ends_with('/').then(|| self.pages.get(&format!("{path}index.html"))).flatten();
        self.pages.get(path).or_else(index).cloned()
    }
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "txt" | "md" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
