//! Reads the files of a configuration and merges their values key by key: a later file overrides an earlier one.

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

/// Maximum size of a file in bytes; a larger one is a mistake.
const FILE_MAX: u64 = 1024 * 1024;
/// Maximum number of drop-ins.
const FILES_MAX: usize = 256;
/// Maximum depth of nested tables.
const DEPTH_MAX: usize = 8;

/// The place of a value: file and line. The derived order is that of the files; line 0 stands for the whole file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    layer: usize,
    file: Arc<str>,
    line: usize,
}

impl Place {
    /// Whether the value is from the embedded defaults.
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

/// The data of a value; tables are flattened and do not occur.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    List(Vec<Value>),
    /// A type that no key has, or a number out of range; with a description for messages.
    Other(&'static str),
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    pub(crate) data: Data,
    pub(crate) place: Place,
}

/// Values by the full path of their key, such as `["network", "bridge"]`.
pub(crate) type Values = BTreeMap<Vec<String>, Value>;

/// The merged values of all files, and the defaults.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    pub(super) defaults: Values,
    pub(super) values: Values,
    /// Tables in tables that have no key, and their places.
    pub(super) empty_tables: Values,
    /// Errors of files that cannot be read or parsed; reported together with all other errors.
    pub(super) errors: Vec<(Place, String)>,
    /// The files that were read, in order.
    pub(crate) files: Vec<PathBuf>,
    /// Number of layers so far, including the defaults.
    count: usize,
}

impl Layers {
    /// Reads a file, or the default one if it exists, and then its drop-ins in the order of their names.
    pub(crate) fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let mut layers = Self::new()?;
        let main = file.unwrap_or(Path::new(DEFAULT_FILE));
        layers.read(main, file.is_none());
        for path in drop_ins(&directory_of(file))? {
            // A drop-in may be removed while the directory is read.
            layers.read(&path, true);
        }
        Ok(layers)
    }

    /// Adds the values of the command line, which override every file.
    pub(crate) fn add_command_line(&mut self, options: Vec<(&str, String)>) {
        let place = Place { layer: self.count, file: "command line".into(), line: 0 };
        let value = |text: String| Value { data: Data::Text(text), place: place.clone() };
        self.values
            .extend(options.into_iter().map(|(key, text)| (key.split('.').map(str::to_owned).collect(), value(text))));
        self.count += 1;
    }

    /// Merges the defaults and a text; error messages use `name` as its file name.
    pub(crate) fn of_text(name: &str, text: &str) -> Result<Self, ConfigError> {
        let mut layers = Self::new()?;
        layers.add(name, text);
        Ok(layers)
    }

    fn new() -> Result<Self, ConfigError> {
        let (defaults, values, errors, files) = (Values::new(), Values::new(), Vec::new(), Vec::new());
        let mut layers = Self { defaults, values, empty_tables: Values::new(), errors, files, count: 0 };
        layers.add("the embedded defaults", DEFAULT);
        if let Some((_, error)) = layers.errors.first() {
            return Err(ConfigError(format!("the embedded defaults: {error}")));
        }
        layers.defaults = std::mem::take(&mut layers.values);
        Ok(layers)
    }

    /// Returns the place of each value that is set in a file or on the command line.
    pub(super) fn places(&self) -> BTreeMap<Vec<String>, String> {
        self.values.iter().map(|(path, value)| (path.clone(), value.place.to_string())).collect()
    }

    fn read(&mut self, path: &Path, optional: bool) {
        match text_of(path) {
            Ok(text) => {
                self.add(&path.display().to_string(), &text);
                self.files.push(path.to_path_buf());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && optional => {}
            Err(error) => {
                let place = Place { layer: self.count, file: path.display().to_string().into(), line: 0 };
                self.errors.push((place, format!("cannot be read: {error}")));
                self.count += 1;
            }
        }
    }

    fn add(&mut self, name: &str, text: &str) {
        let source = Source { layer: self.count, name: name.into(), text };
        self.count += 1;
        let (mut values, mut empty) = (Values::new(), Values::new());
        let parsed = DeTable::parse(text).map_err(|error| source.syntax_error(&error));
        match parsed.and_then(|table| source.flatten(&mut Vec::new(), table.get_ref(), &mut values, &mut empty)) {
            Ok(()) => {
                self.values.extend(values);
                self.empty_tables.extend(empty);
            }
            Err(error) => self.errors.push(error),
        }
    }
}

/// Reads a regular file of at most [`FILE_MAX`] bytes as UTF-8.
fn text_of(path: &Path) -> io::Result<String> {
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if meta.len() > FILE_MAX {
        return Err(io::Error::other(format!("larger than {FILE_MAX} bytes")));
    }
    String::from_utf8(fs::read(path)?).map_err(|error| io::Error::other(format!("not UTF-8: {}", error.utf8_error())))
}

/// Returns the directory of the drop-ins: `/etc/pinion/config.d`, or `<FILE>.d` for a file that was specified.
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

/// Lists the files of a directory whose names end in `.toml` and do not start with a dot, in the order of their names.
/// Empty if the directory does not exist.
fn drop_ins(directory: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let failed = |error: &dyn fmt::Display| {
        ConfigError(format!("read configuration directory {}: {error}", directory.display()))
    };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(&error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| failed(&error))?.file_name();
        if name.as_bytes().ends_with(b".toml") && !name.as_bytes().starts_with(b".") {
            paths.push(directory.join(name));
        }
    }
    if paths.len() > FILES_MAX {
        return Err(failed(&format_args!("{} files, at most {FILES_MAX}", paths.len())));
    }
    paths.sort();
    Ok(paths)
}

/// A text that is being parsed.
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

    fn syntax_error(&self, error: &toml::de::Error) -> (Place, String) {
        let offset = error.span().map_or(0, |span| span.start);
        (self.place(offset), error.message().trim_end().replace('\n', "; "))
    }

    /// Adds each value that is not a table to `into` under its full path, and each table without a key to `empty`.
    fn flatten(
        &self,
        path: &mut Vec<String>,
        table: &DeTable<'_>,
        into: &mut Values,
        empty: &mut Values,
    ) -> Result<(), (Place, String)> {
        for (key, value) in table {
            path.push(key.get_ref().to_string());
            match value.get_ref() {
                DeValue::Table(_) if path.len() > DEPTH_MAX => {
                    let place = self.place(value.span().start);
                    return Err((place, format!("{}: tables are nested too deeply", dotted(path))));
                }
                DeValue::Table(table) if table.is_empty() => {
                    empty.insert(path.clone(), self.value(value, key.span().start));
                }
                DeValue::Table(table) => self.flatten(path, table, into, empty)?,
                _ => drop(into.insert(path.clone(), self.value(value, key.span().start))),
            }
            path.pop();
        }
        Ok(())
    }

    fn value(&self, value: &Spanned<DeValue<'_>>, offset: usize) -> Value {
        let item = |item: &Spanned<DeValue<'_>>| self.value(item, item.span().start);
        let data = match value.get_ref() {
            DeValue::String(text) => Data::Text(text.to_string()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map_or(Data::Other("an integer out of range"), Data::Integer),
            DeValue::Float(number) => number.as_str().parse().map_or(Data::Other("not a number"), Data::Float),
            DeValue::Boolean(yes) => Data::Boolean(*yes),
            DeValue::Array(items) => Data::List(items.iter().map(item).collect()),
            DeValue::Datetime(_) => Data::Other("a date"),
            DeValue::Table(_) => Data::Other("a table"),
        };
        Value { data, place: self.place(offset) }
    }
}

/// Formats the path of a key: `registries.mirrors."docker.io"`.
pub(crate) fn dotted(path: &[String]) -> String {
    let bare = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    let part = |(depth, part): (usize, &String)| match bare(part) && depth < 2 {
        true => part.clone(),
        false => format!("{part:?}"),
    };
    path.iter().enumerate().map(part).collect::<Vec<_>>().join(".")
}
