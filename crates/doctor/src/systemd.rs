//! Units of systemd, read from their files: the doctor also works if systemd does not run, as in a rescue system.
//!
//! Source: systemd.unit(5), systemd.exec(5).

use std::collections::BTreeMap;

use crate::Host;

/// Directories of unit files, the highest priority first.
const DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// A unit with its drop-ins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unit {
    /// The directives in order: name and value.
    directives: Vec<(String, String)>,
}

impl Unit {
    /// Reads a unit and its drop-ins; `None` if it does not exist.
    pub(crate) fn load(host: &Host, name: &str) -> Option<Self> {
        let text = DIRECTORIES.iter().find_map(|directory| host.read(format!("{directory}/{name}")))?;
        let mut unit = Self::default();
        unit.add(&text);
        // A drop-in in a directory of higher priority replaces one of the same name.
        let mut drop_ins = BTreeMap::new();
        for directory in DIRECTORIES.iter().rev().map(|directory| format!("{directory}/{name}.d")) {
            let files = host.list(&directory).into_iter().filter(|file| file.ends_with(".conf"));
            drop_ins.extend(files.map(|file| (file.clone(), format!("{directory}/{file}"))));
        }
        for path in drop_ins.values() {
            unit.add(&host.read(path).unwrap_or_default());
        }
        Some(unit)
    }

    fn add(&mut self, text: &str) {
        let text = text.replace("\\\n", " ");
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';', '[']));
        let directives = lines.filter_map(|line| line.split_once('='));
        self.directives.extend(directives.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())));
    }

    /// Returns the values of a directive; an empty value removes those before it.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let mut values = Vec::new();
        for (_, value) in self.directives.iter().filter(|(key, _)| key == name) {
            match value.is_empty() {
                true => values.clear(),
                false => values.push(value.as_str()),
            }
        }
        values
    }

    /// Whether a directive that lists units, such as `After=`, contains this one.
    pub(crate) fn lists(&self, directive: &str, unit: &str) -> bool {
        self.values(directive).iter().any(|value| value.split_whitespace().any(|name| name == unit))
    }

    /// Returns the command of `ExecStart=` as words, with the variables of `Environment=` and `EnvironmentFile=`.
    pub(crate) fn command(&self, host: &Host) -> Vec<String> {
        let mut variables = BTreeMap::new();
        for line in self.values("Environment") {
            variables.extend(assignments(line));
        }
        for file in self.values("EnvironmentFile") {
            let text = host.read(file.trim_start_matches('-')).unwrap_or_default();
            let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
            for (name, value) in lines.filter_map(|line| line.split_once('=')) {
                variables.insert(name.trim().to_owned(), value.trim().trim_matches(['"', '\'']).to_owned());
            }
        }
        let command = self.values("ExecStart").last().copied().unwrap_or_default();
        let mut arguments = Vec::new();
        for word in words(command.trim_start_matches(['-', '@', ':', '+', '!'])) {
            let name = word.strip_prefix('$').map(|name| name.trim_matches(['{', '}']).to_owned());
            match name {
                // A variable that is a word of its own is split into words.
                Some(name) => arguments.extend(words(variables.get(&name).map_or("", String::as_str))),
                None => arguments.push(word),
            }
        }
        arguments
    }
}

/// Whether a unit is enabled: a link to it is in a `.wants` or `.requires` directory.
pub(crate) fn is_enabled(host: &Host, unit: &str) -> bool {
    let directories = host.list("/etc/systemd/system");
    let mut wants = directories.iter().filter(|name| name.ends_with(".wants") || name.ends_with(".requires"));
    wants.any(|directory| host.exists(format!("/etc/systemd/system/{directory}/{unit}")))
}

/// Whether systemd is the init of the machine (sd_booted(3)).
pub(crate) fn is_init(host: &Host) -> bool {
    host.exists("/run/systemd/system")
}

/// Splits into words at white space; quotes keep white space.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

fn assignments(line: &str) -> Vec<(String, String)> {
    let split = |word: String| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    words(line).into_iter().filter_map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_contains_variables_and_drop_ins() {
        let dir = tempfile::tempdir().expect("a directory");
        let host = Host::at(dir.path());
        let write = |path, text| host.write(path, text);
        write(
            "/lib/systemd/system/kubelet.service",
            "[Unit]\nAfter=network.target\nWants=a.service \\\n b.service\n[Service]\nExecStart=/usr/bin/kubelet\n",
        );
        write(
            "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf",
            "[Service]\nEnvironment=\"CONFIG=--config=/var/lib/kubelet/config.yaml\"\n# no\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\nEnvironmentFile=-/not/there\nExecStart=\nExecStart=/usr/bin/kubelet $CONFIG $FLAGS ${EMPTY} --v=2\n",
        );
        write("/var/lib/kubelet/kubeadm-flags.env", "FLAGS=\"--a=1 --b 2\"\n");
        let unit = Unit::load(&host, "kubelet.service").expect("a unit");
        assert_eq!(
            unit.command(&host),
            ["/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml", "--a=1", "--b", "2", "--v=2"]
        );
        assert!(unit.lists("Wants", "b.service") && !unit.lists("After", "b.service"));
        assert!(Unit::load(&host, "other.service").is_none() && !is_enabled(&host, "kubelet.service"));
        write("/etc/systemd/system/multi-user.target.wants/kubelet.service", "");
        assert!(is_enabled(&host, "kubelet.service"));
    }
}
