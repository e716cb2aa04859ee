//! Writes the translated configuration as TOML.

use toml::{Table, Value};

use crate::{Engine, Finding, Outcome};

/// Writes the values of findings as a configuration file of Pinion. Lists of several keys are joined; of other values
/// of one key, the last is used.
pub fn document(engine: Engine, findings: &[Finding]) -> String {
    let mut root = Table::new();
    for finding in findings {
        if let Outcome::Translated { target, value: Some(value) } = &finding.outcome {
            insert(&mut root, target, value.clone());
        }
    }
    format!("# Translated from the configuration of {engine}. `pinion config default` explains every key.\n\n{root}")
}

fn insert(table: &mut Table, path: &[String], value: Value) {
    match path {
        [] => {}
        [key] => match (table.get_mut(key), value) {
            (Some(Value::Array(items)), Value::Array(more)) => {
                items.extend(more);
            }
            (_, value) => drop(table.insert(key.clone(), value)),
        },
        [key, rest @ ..] => {
            let inner = table.entry(key.clone()).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}
