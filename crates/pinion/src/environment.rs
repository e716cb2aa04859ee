//! Parsers for the options `-e` and `--env-file`.

use std::{env, fs, path::Path};

/// Parses `NAME=value`. `NAME` without a value takes the value from the environment of this process; `None` if it is
/// not set there.
pub(crate) fn variable(text: &str) -> Result<Option<(String, String)>, String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, env::var(text).ok()),
    };
    match name.is_empty() {
        true => Err(format!("{text:?} has no variable name")),
        false => Ok(value.map(|value| (name.to_owned(), value))),
    }
}

/// Reads a file with one variable per line. Blank lines and lines that start with `#` are ignored.
pub(crate) fn file(path: &Path) -> Result<Vec<(String, String)>, String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("read environment file {}: {error}", path.display()))?;
    let mut variables = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if !line.is_empty() && !line.starts_with('#') {
            variables.extend(variable(line).map_err(|cause| format!("{}:{}: {cause}", path.display(), number + 1))?);
        }
    }
    Ok(variables)
}

/// Reads the variables of all files, then those of `-e`. The last value of a variable takes effect.
pub(crate) fn all(files: &[impl AsRef<Path>], variables: &[String]) -> Result<Vec<(String, String)>, String> {
    let mut all: Vec<(String, String)> = Vec::new();
    for path in files {
        all.extend(file(path.as_ref())?);
    }
    for text in variables {
        all.extend(variable(text)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_values_or_are_inherited() {
        assert_eq!(variable("A=b=c"), Ok(Some(("A".to_owned(), "b=c".to_owned()))));
        assert_eq!(variable("PINION_NO_SUCH_VARIABLE"), Ok(None));
        assert!(variable("=x").is_err());
    }

    #[test]
    fn an_error_names_the_invalid_line() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), "# c\n\nA=1\n=2\n").expect("written");
        let error = super::file(file.path()).expect_err("line 4 is invalid");
        assert!(error.contains(":4: "), "{error}");
        fs::write(file.path(), "A=1\n").expect("written");
        let both = all(&[file.path()], &["A=2".to_owned()]).expect("valid");
        assert_eq!(both.last().map(|(_, value)| value.as_str()), Some("2"));
    }
}
