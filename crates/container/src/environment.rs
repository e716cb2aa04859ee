//! `process.env`, as passed to execve(2): one value for each name.

use std::{collections::BTreeSet, ffi::CString};

use crate::{Error, spec_string::c_string};

/// Checks the variables and removes duplicates. As in runc, the last of several with the same name counts, and `HOME`
/// without a value counts as absent: its value is then taken from the container's `/etc/passwd`.
///
/// The kernel would pass duplicates on, and which one counts would depend on the program: shells take the last,
/// getenv(3) the first.
pub(crate) fn parse(variables: &[String]) -> Result<Vec<CString>, Error> {
    let mut names = BTreeSet::new();
    let mut unique = Vec::with_capacity(variables.len() + 1);
    for variable in variables.iter().rev() {
        let Some((name, value)) = variable.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(Error::invalid(format!("process.env: {variable:?} is not NAME=value")));
        };
        if names.insert(name) && !(name == "HOME" && value.is_empty()) {
            unique.push(c_string("process.env", variable)?);
        }
    }
    unique.reverse();
    Ok(unique)
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn parsed(variables: &[&str]) -> Vec<String> {
        let variables: Vec<String> = variables.iter().map(|variable| (*variable).to_owned()).collect();
        parse(&variables).unwrap().into_iter().map(|variable| variable.into_string().unwrap()).collect()
    }

    #[test]
    fn the_last_of_one_name_counts() {
        assert_eq!(parsed(&["A=1", "B=2", "A=", "C=x=y", "A=3", "AA=4"]), ["B=2", "C=x=y", "A=3", "AA=4"]);
    }

    #[test]
    fn home_without_a_value_is_absent() {
        assert_eq!(parsed(&["HOME=/a", "A=", "HOME="]), ["A="]);
        assert_eq!(parsed(&["HOME=", "HOME=/a"]), ["HOME=/a"]);
    }

    #[test]
    fn strings_that_are_not_variables_are_refused() {
        for wrong in ["", "A", "=x", "A=\0"] {
            assert!(parse(&[wrong.to_owned()]).unwrap_err().to_string().contains("process.env"), "{wrong:?}");
        }
    }
}
