//! The files a configuration comes from, and their values merged: of two files the later says what holds, key by key.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{ConfigError, DEFAULT, DEFAULT_FILE};

/// Longest file: one that is longer was written by mistake.
const FILE_MAX: u64 = 1024 * 1024;
/// Most drop-ins.
const FILES_MAX: usize = 256;
/// Deepest table.
const DEPTH_MAX: usize = 8;

/// Where a value was said. The default order is that of the files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    layer: usize,
    file: Arc<str>,
    line: usize,
}

impl Place {
    /// Whether it is in the embedded defaults.
    pub(crate) fn is_default(&self) -> bool {
        self.layer == 0
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_default() {
            true => f.write_str("default"),
            false => write!(f, "{}:{}", self.file, self.line),
        }
    }
}

/// A value that is no table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    List(Vec<Value>),
    /// Of a kind that no key has, or a number beyond all bounds.
    Other(&'static str),
}

/// A value and where it was said.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    pub(crate) what: What,
    pub(crate) at: Place,
}

/// From the whole path of a key (`["network", "bridge"]`) to its value.
pub(crate) type Values = BTreeMap<Vec<String>, Value>;

/// What the files say, and what holds where they say nothing.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    pub(super) defaults: Values,
    pub(super) values: Values,
    /// The files that were read, in order.
    pub(crate) files: Vec<PathBuf>,
    /// Layers so far, the defaults among them.
    count: usize,
}

impl Layers {
    /// Reads a file, or the default one where there is one, and then its drop-ins by name.
    pub(crate) fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let mut layers = Self::new()?;
        let main = file.unwrap_or(Path::new(DEFAULT_FILE));
        layers.read(main, file.is_none())?;
        for path in drop_ins(&folder_of(file))? {
            // One that is removed just now is not there.
            layers.read(&path, true)?;
        }
        Ok(layers)
    }

    /// The defaults and one text; `name` stands for it in messages.
    pub(crate) fn of_text(name: &str, text: &str) -> Result<Self, ConfigError> {
        let mut layers = Self::new()?;
        layers.add(name, text)?;
        Ok(layers)
    }

    fn new() -> Result<Self, ConfigError> {
        let mut layers = Self { defaults: Values::new(), values: Values::new(), files: Vec::new(), count: 0 };
        layers.add("the embedded defaults", DEFAULT)?;
        layers.defaults = std::mem::take(&mut layers.values);
        Ok(layers)
    }

    /// Where each value that a file says was said.
    pub(super) fn places(&self) -> BTreeMap<Vec<String>, String> {
        self.values.iter().map(|(path, value)| (path.clone(), value.at.to_string())).collect()
    }

    fn read(&mut self, path: &Path, may_lack: bool) -> Result<(), ConfigError> {
        let wrong = |error: &dyn fmt::Display| ConfigError(format!("read configuration {}: {error}", path.display()));
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && may_lack => return Ok(()),
            Err(error) => return Err(wrong(&error)),
            Ok(meta) if !meta.is_file() => return Err(wrong(&"it is no file")),
            Ok(meta) if meta.len() > FILE_MAX => return Err(wrong(&format_args!("longer than {FILE_MAX} bytes"))),
            Ok(_) => {}
        }
        match fs::read_to_string(path) {
            Ok(text) => self.add(&path.display().to_string(), &text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound && may_lack => return Ok(()),
            Err(error) => return Err(wrong(&error)),
        }
        self.files.push(path.to_path_buf());
        Ok(())
    }

    fn add(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
        let source = Source { layer: self.count, name: name.into(), text };
        let table = DeTable::parse(text).map_err(|error| source.syntax(&error))?;
        source.flatten(&mut Vec::new(), table.get_ref(), &mut self.values)?;
        self.count += 1;
        Ok(())
    }
}

/// Where drop-ins of a file are: `/etc/pinion/config.d`, or `<FILE>.d` for one that was named.
pub(crate) fn folder_of(file: Option<&Path>) -> PathBuf {
    match file {
        None => Path::new(DEFAULT_FILE).with_extension("d"),
        Some(file) => {
            let mut folder = file.as_os_str().to_owned();
            folder.push(".d");
            folder.into()
        }
    }
}

/// Files of a folder whose names end in `.toml` and begin with no dot, by name. No folder: none.
fn drop_ins(folder: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let wrong =
        |error: &dyn fmt::Display| ConfigError(format!("read configuration folder {}: {error}", folder.display()));
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(wrong(&error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| wrong(&error))?.file_name();
        if name.as_bytes().ends_with(b".toml") && !name.as_bytes().starts_with(b".") {
            paths.push(folder.join(name));
        }
    }
    if paths.len() > FILES_MAX {
        return Err(wrong(&format_args!("{} files, at most {FILES_MAX}", paths.len())));
    }
    paths.sort();
    Ok(paths)
}

/// One text that is being read.
struct Source<'a> {
    layer: usize,
    name: Arc<str>,
    text: &'a str,
}

impl Source<'_> {
    fn place(&self, byte: usize) -> Place {
        let line = self.text.as_bytes().iter().take(byte).filter(|byte| **byte == b'\n').count() + 1;
        Place { layer: self.layer, file: self.name.clone(), line }
    }

    fn syntax(&self, error: &toml::de::Error) -> ConfigError {
        let at = error.span().map_or(0, |span| span.start);
        ConfigError(format!("{}: {}", self.place(at), error.message().trim_end().replace('\n', "; ")))
    }

    /// Puts each value that is no table under its whole path.
    fn flatten(&self, path: &mut Vec<String>, table: &DeTable<'_>, into: &mut Values) -> Result<(), ConfigError> {
        for (key, value) in table {
            path.push(key.get_ref().to_string());
            match value.get_ref() {
                DeValue::Table(_) if path.len() > DEPTH_MAX => {
                    let at = self.place(value.span().start);
                    return Err(ConfigError(format!("{at}: {}: tables within tables", shown(path))));
                }
                DeValue::Table(table) => self.flatten(path, table, into)?,
                _ => drop(into.insert(path.clone(), self.value(value, key.span().start))),
            }
            path.pop();
        }
        Ok(())
    }

    fn value(&self, value: &Spanned<DeValue<'_>>, at: usize) -> Value {
        let item = |item: &Spanned<DeValue<'_>>| self.value(item, item.span().start);
        let what = match value.get_ref() {
            DeValue::String(text) => What::Text(text.to_string()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map_or(What::Other("an integer beyond all bounds"), What::Integer),
            DeValue::Float(number) => number.as_str().parse().map_or(What::Other("no number"), What::Float),
            DeValue::Boolean(yes) => What::Boolean(*yes),
            DeValue::Array(items) => What::List(items.iter().map(item).collect()),
            DeValue::Datetime(_) => What::Other("a date"),
            DeValue::Table(_) => What::Other("a table"),
        };
        Value { what, at: self.place(at) }
    }
}

/// `registries.mirrors."docker.io"`.
pub(crate) fn shown(path: &[String]) -> String {
    let bare = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    let part = |(depth, part): (usize, &String)| match bare(part) && depth < 2 {
        true => part.clone(),
        false => format!("{part:?}"),
    };
    path.iter().enumerate().map(part).collect::<Vec<_>>().join(".")
}
