//! `docs/migration.md` lists every rule, and nothing else.

use config_import::{Engine, Rule, Treatment, rules};

/// Returns the row of a rule.
fn row(rule: &Rule) -> String {
    let text = match rule.treatment {
        Treatment::Becomes(target, _) | Treatment::Part(target, _) => format!("→ `{target}`"),
        Treatment::Unneeded(reason) => format!("not needed: {reason}"),
        Treatment::Unserved(reason) => format!("only the default: {reason}"),
    };
    let default = if rule.default.is_empty() { "–".to_owned() } else { format!("`{}`", rule.default) };
    format!("| `{}` | {default} | {text} |", rule.key)
}

#[test]
fn every_key_is_documented() {
    let document = include_str!("../../../docs/migration.md");
    let expected: Vec<String> = [Engine::Containerd, Engine::Crio]
        .into_iter()
        .flat_map(rules)
        .flat_map(|(_, rules)| rules.iter().map(row).collect::<Vec<_>>())
        .collect();
    let rows: Vec<&str> = document.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(rows, expected, "write these rows:\n{}", expected.join("\n"));
}

#[test]
fn every_rule_has_a_valid_default_and_one_place() {
    for engine in [Engine::Containerd, Engine::Crio] {
        for (file, rules) in rules(engine) {
            for (index, rule) in rules.iter().enumerate() {
                let is_valid =
                    rule.default.is_empty() || toml::from_str::<toml::Table>(&format!("v = {}", rule.default)).is_ok();
                assert!(is_valid, "{file}: {}: {}", rule.key, rule.default);
                assert!(rules[..index].iter().all(|other| other.key != rule.key), "{file}: {} twice", rule.key);
            }
        }
    }
}
