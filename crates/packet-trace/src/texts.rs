//! Texts of rules, as nft(8) prints them. Without that program a rule is known by its table, chain and number only.

use std::{
    collections::HashMap,
    io::Read,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use netns::Namespace;

/// Most bytes of a table's text. Sets are left out.
const TEXT_MAX: u64 = 8 << 20;
/// How long nft may take for all tables of a network namespace together.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(5);

/// Rules of the tables of one network namespace.
pub(crate) struct Texts<'a> {
    namespace: &'a Namespace,
    tables: HashMap<String, HashMap<u64, String>>,
    /// Set when the first text is read.
    deadline: Option<Instant>,
}

impl<'a> Texts<'a> {
    pub(crate) fn new(namespace: &'a Namespace) -> Self {
        Self { namespace, tables: HashMap::new(), deadline: None }
    }

    /// Returns the text of a rule. `table` has the family before the name.
    pub(crate) fn of(&mut self, table: &str, rule: u64) -> Option<String> {
        let namespace = self.namespace;
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
        // nft reads its arguments as a script, and the kernel permits every name.
        if !table.split_once(' ').is_some_and(|(_, name)| is_plain(name)) {
            return None;
        }
        let rules = self.tables.entry(table.to_owned()).or_insert_with(|| {
            let table = table.to_owned();
            namespace.enter(move || list(&table, deadline)).ok().flatten().map(|text| parse(&text)).unwrap_or_default()
        });
        rules.get(&rule).cloned()
    }
}

/// Has nft list a table in the network namespace of the calling thread.
fn list(table: &str, deadline: Instant) -> Option<String> {
    if Instant::now() >= deadline {
        return None;
    }
    let (family, name) = table.split_once(' ')?;
    let mut nft = Command::new("nft");
    nft.args(["-a", "-t", "list", "table", family, name]).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = nft.stdout(Stdio::piped()).spawn().ok()?;
    let output = child.stdout.take()?;
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        let read = output.take(TEXT_MAX).read_to_end(&mut text);
        read.map(|_| String::from_utf8_lossy(&text).into_owned())
    });
    while !reader.is_finished() && Instant::now() < deadline {
        thread::sleep(PAUSE);
    }
    // Otherwise it waits for a reader, or for the kernel.
    let _ = child.kill();
    let _ = child.wait();
    reader.join().ok()?.ok()
}

/// Reports whether a table has a name that nft takes for one.
fn is_plain(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit() || matches!(c, '.' | '-'))
}

/// Returns the rules by their handles: each line of a rule ends with `# handle N`.
fn parse(text: &str) -> HashMap<u64, String> {
    let rules = text.lines().filter_map(|line| {
        let (rule, handle) = line.trim().rsplit_once(" # handle ")?;
        let rule = rule.trim_end();
        Some((handle.parse().ok()?, rule.to_owned())).filter(|_| !rule.ends_with('{'))
    });
    rules.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_scripts_are_not_given_to_nft() {
        assert!(is_plain("pinion_overlay") && is_plain("kube-proxy") && is_plain("_x.1"));
        for script in ["", "1", "a b", "x; include \"/etc/passwd\"", "x\ny", "$x", "-f"] {
            assert!(!is_plain(script), "{script}");
        }
    }

    #[test]
    fn rules_are_found_by_their_handles() {
        let text = "table ip t { # handle 1\n\tchain c { # handle 2\n\t\ttype filter hook input priority 0; policy accept;\n\
                    \t\tip daddr 10.0.0.1 counter packets 3 bytes 4 comment \" # handle 9\" drop # handle 5\n\t}\n}\n";
        let rules = parse(text);
        assert_eq!(rules.len(), 1, "{rules:?}");
        assert_eq!(rules[&5], "ip daddr 10.0.0.1 counter packets 3 bytes 4 comment \" # handle 9\" drop");
    }
}
