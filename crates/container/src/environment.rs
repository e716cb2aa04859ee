//! `process.env`, as execve(2) gets it: one value for each name.

use std::{collections::BTreeSet, ffi::CString};

use crate::{Error, text::c_string};

/// Checks the variables. As in runc, the last of several with one name counts, and `HOME` without a value is one that
/// is absent: it is taken from the container's `/etc/passwd`.
///
/// The kernel would hand over duplicates, and which one counts would depend on the program: shells take the last,
/// getenv(3) the first.
pub(crate) fn parse(variables: &[String]) -> Result<Vec<CString>, Error> {
    let mut names = BTreeSet::new();
    let mut kept = Vec::with_capacity(variables.len() + 1);
    for variable in variables.iter().rev() {
        let Some((name, value)) = variable.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(Error::invalid(format!("process.env: {variable:?} is not NAME=value")));
        };
        if names.insert(name) && !(name == "HOME" && value.is_empty()) {
            kept.push(c_string("process.env", variable)?);
        }
    }
    kept.reverse();
    Ok(kept)
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
    fn what_is_no_variable_is_refused() {
        for wrong in ["", "A", "=x", "A=\0"] {
            assert!(parse(&[wrong.to_owned()]).unwrap_err().to_string().contains("process.env"), "{wrong:?}");
        }
    }
}
