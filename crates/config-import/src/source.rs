//! Reads TOML files as flat lists of settings with their lines.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use toml::{
    Spanned, Table, Value,
    de::{DeTable, DeValue},
};

/// Maximum size of a file in bytes.
const FILE_MAX: u64 = 1024 * 1024;
/// Maximum number of files of a configuration.
const FILES_MAX: usize = 512;
/// Maximum depth of tables and lists.
const DEPTH_MAX: usize = 16;

/// A configuration that cannot be translated.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A file or directory cannot be read.
    #[error("read {}: {source}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not valid.
    #[error("{}:{line}: {cause}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line; 0 stands for the whole file.
        line: usize,
        /// Why.
        cause: String,
    },
}

/// A key of a file, with its value. A table is not a value; an empty one is not a setting.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The path of the key in the newest version of the format.
    pub(crate) path: Vec<String>,
    /// The path as it is written, if that differs.
    pub(crate) written: Option<Vec<String>>,
    pub(crate) value: Value,
    pub(crate) file: Arc<Path>,
    pub(crate) line: usize,
}

impl Setting {
    pub(crate) fn invalid(&self, cause: impl Into<String>) -> ImportError {
        ImportError::Invalid { path: self.file.to_path_buf(), line: self.line, cause: cause.into() }
    }
}

/// Makes the error of a file or directory that cannot be read.
pub(crate) fn unreadable(path: &Path, source: io::Error) -> ImportError {
    ImportError::Read { path: path.to_path_buf(), source }
}

/// Reads the settings of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<Setting>, ImportError> {
    let text = text_of(path).map_err(|error| unreadable(path, error))?;
    let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
    let source = Source { file: path.into(), ends };
    let table = DeTable::parse(&text)
        .map_err(|error| source.invalid(error.span().map_or(0, |span| span.start), error.message()))?;
    let mut settings = Vec::new();
    source.flatten(&mut Vec::new(), table.get_ref(), &mut settings)?;
    // Tables are parsed in the order of their names; people read reports in the order of the file.
    settings.sort_by_key(|setting| setting.line);
    Ok(settings)
}

/// Reads the settings of a file, if it exists.
pub(crate) fn read_if_present(path: &Path) -> Result<Option<Vec<Setting>>, ImportError> {
    match read(path) {
        Err(ImportError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        settings => settings.map(Some),
    }
}

/// Lists the entries of a directory whose names are selected, in the order of their names. Empty if the
/// directory does not exist.
pub(crate) fn list(directory: &Path, selects: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, ImportError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(Vec::new());
        }
        entries => entries.map_err(|error| unreadable(directory, error))?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| unreadable(directory, error))?.file_name();
        if name.to_str().is_some_and(&selects) {
            paths.push(directory.join(name));
        }
        if paths.len() > FILES_MAX {
            return Err(unreadable(directory, io::Error::other(format!("more than {FILES_MAX} files"))));
        }
    }
    paths.sort();
    Ok(paths)
}

/// Checks the number of files of a configuration.
pub(crate) fn check_count(files: &[PathBuf]) -> Result<(), ImportError> {
    match files.last() {
        Some(last) if files.len() > FILES_MAX => {
            Err(unreadable(last, io::Error::other(format!("more than {FILES_MAX} files"))))
        }
        _ => Ok(()),
    }
}

/// Reads a regular file of at most [`FILE_MAX`] bytes as UTF-8.
pub(crate) fn text_of(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(io::Error::other(format!("larger than {FILE_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::other(format!("not UTF-8: {}", error.utf8_error())))
}

/// A text that is being parsed.
struct Source {
    file: Arc<Path>,
    /// The positions of the line ends in the file.
    ends: Vec<usize>,
}

impl Source {
    fn line(&self, byte: usize) -> usize {
        self.ends.partition_point(|end| *end < byte) + 1
    }

    fn invalid(&self, byte: usize, cause: &str) -> ImportError {
        let cause = cause.trim_end().replace('\n', "; ");
        ImportError::Invalid { path: self.file.to_path_buf(), line: self.line(byte), cause }
    }

    /// Adds each value that is not a table to `into` under its full path.
    fn flatten(&self, path: &mut Vec<String>, table: &DeTable<'_>, into: &mut Vec<Setting>) -> Result<(), ImportError> {
        for (key, value) in table {
            path.push(key.get_ref().to_string());
            let start = key.span().start;
            if path.len() > DEPTH_MAX {
                return Err(self.invalid(start, "tables are nested too deeply"));
            }
            match value.get_ref() {
                DeValue::Table(table) => self.flatten(path, table, into)?,
                _ => into.push(Setting {
                    path: path.clone(),
                    written: None,
                    value: self.value(value, DEPTH_MAX)?,
                    file: self.file.clone(),
                    line: self.line(start),
                }),
            }
            path.pop();
        }
        Ok(())
    }

    fn value(&self, value: &Spanned<DeValue<'_>>, depth: usize) -> Result<Value, ImportError> {
        let start = value.span().start;
        let depth = depth.checked_sub(1).ok_or_else(|| self.invalid(start, "lists are nested too deeply"))?;
        Ok(match value.get_ref() {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map(Value::Integer)
                .map_err(|_| self.invalid(start, "an integer out of range"))?,
            DeValue::Float(number) => {
                Value::Float(number.as_str().parse().map_err(|_| self.invalid(start, "not a number"))?)
            }
            DeValue::Boolean(flag) => Value::Boolean(*flag),
            DeValue::Array(items) => {
                Value::Array(items.iter().map(|item| self.value(item, depth)).collect::<Result<_, _>>()?)
            }
            DeValue::Datetime(date) => Value::Datetime(*date),
            DeValue::Table(table) => {
                let item = |(key, value): (&Spanned<_>, _)| Ok((key_text(key), self.value(value, depth)?));
                Value::Table(table.iter().map(item).collect::<Result<Table, ImportError>>()?)
            }
        })
    }
}

fn key_text(key: &Spanned<toml::de::DeString<'_>>) -> String {
    key.get_ref().to_string()
}
