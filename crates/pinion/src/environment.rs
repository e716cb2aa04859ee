//! `-e` and `--env-file`.

use std::{env, fs, path::Path};

/// `NAME=value` as it is; `NAME` alone takes this process's value, or is left out where there is none.
pub(crate) fn variable(text: &str) -> Result<Option<(String, String)>, String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, env::var(text).ok()),
    };
    match name.is_empty() {
        true => Err(format!("{text:?} names no variable")),
        false => Ok(value.map(|value| (name.to_owned(), value))),
    }
}

/// A file of such lines; blank ones and those that begin with `#` say nothing.
pub(crate) fn file(path: &Path) -> Result<Vec<(String, String)>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("environment file {}: {error}", path.display()))?;
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if !line.is_empty() && !line.starts_with('#') {
            found.extend(variable(line).map_err(|why| format!("{}:{}: {why}", path.display(), number + 1))?);
        }
    }
    Ok(found)
}

/// Files first, then single variables: what is said last holds.
pub(crate) fn all(files: &[impl AsRef<Path>], variables: &[String]) -> Result<Vec<(String, String)>, String> {
    let mut found: Vec<(String, String)> = Vec::new();
    for path in files {
        found.extend(file(path.as_ref())?);
    }
    for text in variables {
        found.extend(variable(text)?);
    }
    Ok(found)
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
    fn a_file_names_its_wrong_line() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), "# c\n\nA=1\n=2\n").expect("written");
        let error = super::file(file.path()).expect_err("line 4 is wrong");
        assert!(error.contains(":4: "), "{error}");
        fs::write(file.path(), "A=1\n").expect("written");
        let both = all(&[file.path()], &["A=2".to_owned()]).expect("valid");
        assert_eq!(both.last().map(|(_, value)| value.as_str()), Some("2"));
    }
}
