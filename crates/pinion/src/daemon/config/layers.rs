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

/// Where a value was said. The default order is that of the files; line 0 is the whole of it.
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
        match (self.is_default(), self.line) {
            (true, _) => f.write_str("default"),
            (false, 0) => f.write_str(&self.file),
            (false, line) => write!(f, "{}:{line}", self.file),
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
    /// Files that cannot be read, and why: told with all else that is wrong.
    pub(super) wrong: Vec<(Place, String)>,
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
        layers.read(main, file.is_none());
        for path in drop_ins(&directory_of(file))? {
            // One that is removed just now is not there.
            layers.read(&path, true);
        }
        Ok(layers)
    }

    /// What the command line says goes before every file.
    pub(crate) fn say(&mut self, said: Vec<(&str, String)>) {
        let at = Place { layer: self.count, file: "command line".into(), line: 0 };
        let value = |text: String| Value { what: What::Text(text), at: at.clone() };
        self.values
            .extend(said.into_iter().map(|(key, text)| (key.split('.').map(str::to_owned).collect(), value(text))));
        self.count += 1;
    }

    /// The defaults and one text; `name` stands for it in messages.
    pub(crate) fn of_text(name: &str, text: &str) -> Result<Self, ConfigError> {
        let mut layers = Self::new()?;
        layers.add(name, text);
        Ok(layers)
    }

    fn new() -> Result<Self, ConfigError> {
        let (defaults, values, wrong, files) = (Values::new(), Values::new(), Vec::new(), Vec::new());
        let mut layers = Self { defaults, values, wrong, files, count: 0 };
        layers.add("the embedded defaults", DEFAULT);
        if let Some((_, why)) = layers.wrong.first() {
            return Err(ConfigError(format!("the embedded defaults: {why}")));
        }
        layers.defaults = std::mem::take(&mut layers.values);
        Ok(layers)
    }

    /// Where each value that a file says was said.
    pub(super) fn places(&self) -> BTreeMap<Vec<String>, String> {
        self.values.iter().map(|(path, value)| (path.clone(), value.at.to_string())).collect()
    }

    fn read(&mut self, path: &Path, may_lack: bool) {
        match text_of(path) {
            Ok(text) => {
                self.add(&path.display().to_string(), &text);
                self.files.push(path.to_path_buf());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && may_lack => {}
            Err(error) => {
                let at = Place { layer: self.count, file: path.display().to_string().into(), line: 0 };
                self.wrong.push((at, format!("cannot be read: {error}")));
                self.count += 1;
            }
        }
    }

    fn add(&mut self, name: &str, text: &str) {
        let source = Source { layer: self.count, name: name.into(), text };
        self.count += 1;
        let mut values = Values::new();
        let read = DeTable::parse(text).map_err(|error| source.syntax(&error));
        match read.and_then(|table| source.flatten(&mut Vec::new(), table.get_ref(), &mut values)) {
            Ok(()) => self.values.extend(values),
            Err(wrong) => self.wrong.push(wrong),
        }
    }
}

/// A file's text, as long as it is one.
fn text_of(path: &Path) -> io::Result<String> {
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    if meta.len() > FILE_MAX {
        return Err(io::Error::other(format!("it is longer than {FILE_MAX} bytes")));
    }
    String::from_utf8(fs::read(path)?)
        .map_err(|error| io::Error::other(format!("it is no UTF-8: {}", error.utf8_error())))
}

/// Where drop-ins of a file are: `/etc/pinion/config.d`, or `<FILE>.d` for one that was named.
pub(crate) fn directory_of(file: Option<&Path>) -> PathBuf {
    match file {
        None => Path::new(DEFAULT_FILE).with_extension("d"),
        Some(file) => {
            let mut directory = file.as_os_str().to_owned();
            directory.push(".d");
            directory.into()
        }
    }
}

/// Files of a directory whose names end in `.toml` and begin with no dot, by name. No directory: none.
fn drop_ins(directory: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let wrong = |error: &dyn fmt::Display| {
        ConfigError(format!("read configuration directory {}: {error}", directory.display()))
    };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(wrong(&error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| wrong(&error))?.file_name();
        if name.as_bytes().ends_with(b".toml") && !name.as_bytes().starts_with(b".") {
            paths.push(directory.join(name));
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

    fn syntax(&self, error: &toml::de::Error) -> (Place, String) {
        let at = error.span().map_or(0, |span| span.start);
        (self.place(at), error.message().trim_end().replace('\n', "; "))
    }

    /// Puts each value that is no table under its whole path.
    fn flatten(&self, path: &mut Vec<String>, table: &DeTable<'_>, into: &mut Values) -> Result<(), (Place, String)> {
        for (key, value) in table {
            path.push(key.get_ref().to_string());
            match value.get_ref() {
                DeValue::Table(_) if path.len() > DEPTH_MAX => {
                    let at = self.place(value.span().start);
                    return Err((at, format!("{}: tables within tables", shown(path))));
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
