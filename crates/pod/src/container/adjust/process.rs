//! Adjustments of the process: environment, arguments, limits.

use nri::messages::{KeyValue, Rlimit};
use oci::Process;

use super::removed;
use crate::{Error, container::spec::set};

pub(super) fn apply(
    process: &mut Process,
    env: Vec<KeyValue>,
    args: Vec<String>,
    rlimits: Vec<Rlimit>,
) -> Result<(), Error> {
    for KeyValue { key, value } in env {
        let name = removed(&key).unwrap_or(&key);
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(Error::invalid(format!("environment variable {name:?}: it is not valid")));
        }
        match removed(&key) {
            Some(name) => process.env.retain(|variable| variable.split('=').next() != Some(name)),
            None => set(&mut process.env, format!("{key}={value}")),
        }
    }
    if !args.is_empty() {
        process.args = args;
    }
    for Rlimit { r#type: kind, hard, soft } in rlimits {
        process.rlimits.retain(|known| known.kind != kind);
        process.rlimits.push(oci::Rlimit { kind, soft, hard });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(key: &str, value: &str) -> KeyValue {
        KeyValue { key: key.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn variables_are_set_and_removed_by_name() {
        let mut process = Process { env: vec!["A=1".to_owned(), "AB=2".to_owned()], ..Process::default() };
        let env = vec![variable("-A", ""), variable("AB", "3"), variable("C", "x=y")];
        apply(&mut process, env, Vec::new(), Vec::new()).expect("valid");
        assert_eq!(process.env, ["AB=3", "C=x=y"]);
        apply(&mut process, vec![variable("A=B", "")], Vec::new(), Vec::new()).expect_err("not a name");
    }

    #[test]
    fn a_limit_replaces_the_one_of_its_kind() {
        let limit = |soft| Rlimit { r#type: "RLIMIT_NOFILE".to_owned(), soft, hard: 10 };
        let mut process = Process::default();
        apply(&mut process, Vec::new(), Vec::new(), vec![limit(1)]).expect("valid");
        apply(&mut process, Vec::new(), Vec::new(), vec![limit(2)]).expect("valid");
        assert_eq!(process.rlimits.iter().map(|limit| limit.soft).collect::<Vec<_>>(), [2]);
    }
}
