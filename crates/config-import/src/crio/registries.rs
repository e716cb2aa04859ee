//! `registries.conf` (containers-registries.conf(5)): mirrors, insecure and blocked registries.

use std::path::Path;

use toml::{Table, Value};

use crate::{
    Conversion, Finding, Import, ImportError, Outcome, Rule,
    apply::apply,
    rule::{becomes, unneeded, unserved},
    source::{self, Setting},
};

const NAMES: &str = "names of images without a registry are completed by `registries.default_registry` only";
const NAMESPACE: &str = "mirrors are per registry, not per repository";
const MIRROR_PATH: &str =
    "a mirror below a path needs a hosts.toml in `registries.config_dir`: server https://HOST/v2/PATH, override_path";
const BLOCKED: &str = "registries cannot be blocked";
/// CRI-O tries TLS without verification first, so plain HTTP must not be guessed: it would send passwords in clear.
pub(super) const INSECURE: &str =
    "write skip_verify to a hosts.toml for TLS without verification, or name the registry in `registries.plain_http`";

/// Rules of `registries.conf`. Keys of `[[registry]]` are translated together.
pub(crate) const REGISTRIES: [Rule; 14] = [
    becomes("unqualified-search-registries", "", "registries.default_registry", Conversion::One),
    unserved("short-name-mode", "'enforcing'", NAMES),
    unserved("aliases.*", "", NAMES),
    unneeded("additional-layer-store-auth-helper", "''", "layer stores of other programs are not used"),
    unserved(
        "credential-helpers",
        "['containers-auth.json']",
        "helper programs are not run; use `registries.auth_file`",
    ),
    becomes("registry.prefix", "", "registries.mirrors", Conversion::Named),
    becomes("registry.location", "", "registries.mirrors", Conversion::Named),
    becomes("registry.mirror.location", "", "registries.mirrors", Conversion::Named),
    unserved("registry.insecure", "false", INSECURE),
    unserved("registry.mirror.insecure", "false", INSECURE),
    unserved("registry.blocked", "false", BLOCKED),
    unserved("registry.mirror-by-digest-only", "false", "use a hosts.toml with capabilities = [\"pull\"]"),
    unserved("registry.mirror.pull-from-mirror", "'all'", "use a hosts.toml with capabilities"),
    unserved("registry.mirror.mirror-by-digest-only", "false", "use a hosts.toml with capabilities"),
];

/// Adds the findings of `registries.conf` and its drop-ins, if they exist.
pub(super) fn import(containers: &Path, import: &mut Import) -> Result<(), ImportError> {
    let drop_ins = source::list(&containers.join("registries.conf.d"), |name| name.ends_with(".conf"))?;
    let mut settings = Vec::new();
    for path in [containers.join("registries.conf")].into_iter().chain(drop_ins) {
        let Some(more) = source::read_if_present(&path)? else { continue };
        import.files.push(path);
        settings.extend(more);
    }
    source::check_count(&import.files)?;
    let (registries, settings): (Vec<_>, Vec<_>) = settings.into_iter().partition(|s| s.path == ["registry"]);
    // A default registry is implied by no rule: CRI-O does not complete names unless it is configured.
    import.findings.extend(apply(settings, &REGISTRIES).into_iter().filter(|finding| finding.place.is_some()));
    for setting in &registries {
        for registry in setting.value.as_array().into_iter().flatten().filter_map(Value::as_table) {
            import.findings.extend(Registry::read(setting, registry).findings());
        }
    }
    Ok(())
}

/// One `[[registry]]`.
struct Registry<'a> {
    setting: &'a Setting,
    table: &'a Table,
    /// The registry or repositories that it is for.
    prefix: &'a str,
    /// Where they are.
    location: &'a str,
    mirrors: Vec<&'a Table>,
}

impl<'a> Registry<'a> {
    fn read(setting: &'a Setting, table: &'a Table) -> Self {
        let location = text(table, "location");
        let prefix = Some(text(table, "prefix")).filter(|prefix| !prefix.is_empty()).unwrap_or(location);
        let mirrors = table.get("mirror").and_then(Value::as_array);
        let mirrors = mirrors.into_iter().flatten().filter_map(Value::as_table).collect();
        Self { setting, table, prefix, location, mirrors }
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![];
        if flag(self.table, "blocked") {
            return vec![self.finding("blocked", Outcome::Unserved(BLOCKED.to_owned()))];
        }
        let redirect = (self.location != self.prefix && !self.location.is_empty()).then_some(self.table);
        if self.prefix.contains(['/', '*']) && (redirect.is_some() || !self.mirrors.is_empty()) {
            findings.push(self.finding("prefix", Outcome::Unserved(NAMESPACE.to_owned())));
        } else {
            findings.extend(self.mirror_findings(redirect));
        }
        let insecure = [("insecure", flag(self.table, "insecure")), ("mirror.insecure", self.has_insecure_mirror())];
        let insecure = insecure.into_iter().filter(|(_, is_set)| *is_set);
        findings.extend(insecure.map(|(key, _)| self.finding(key, Outcome::Unserved(INSECURE.to_owned()))));
        findings.extend(self.restrictions());
        findings.extend(self.unknown());
        findings
    }

    fn has_insecure_mirror(&self) -> bool {
        self.mirrors.iter().any(|mirror| flag(mirror, "insecure"))
    }

    /// Translates the mirrors, and a location that differs from the name, which is one more mirror.
    fn mirror_findings(&self, redirect: Option<&'a Table>) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut urls = Vec::new();
        for mirror in self.mirrors.iter().copied().chain(redirect) {
            let location = text(mirror, "location");
            match location.contains('/') {
                true => findings.push(self.finding("location", Outcome::Unserved(MIRROR_PATH.to_owned()))),
                false => urls.push(format!("https://{location}")),
            }
        }
        if !urls.is_empty() {
            let target = vec!["registries".to_owned(), "mirrors".to_owned(), self.prefix.to_owned()];
            findings.push(self.translated("mirror", target, urls));
        }
        findings
    }

    fn restrictions(&self) -> Vec<Finding> {
        let is_set = |table: &Table, key: &str| match table.get(key) {
            Some(Value::Boolean(flag)) => *flag,
            Some(Value::String(text)) => text != "all",
            _ => false,
        };
        let keys = ["mirror-by-digest-only", "pull-from-mirror"];
        let tables = || [self.table].into_iter().chain(self.mirrors.iter().copied());
        let restricted = keys.into_iter().filter(|key| tables().any(|table| is_set(table, key)));
        let reason = "use a hosts.toml with capabilities in `registries.config_dir`";
        restricted.map(|key| self.finding(key, Outcome::Unserved(reason.to_owned()))).collect()
    }

    fn unknown(&self) -> Vec<Finding> {
        let keys = ["prefix", "location", "insecure", "blocked", "mirror", "mirror-by-digest-only"];
        let unknown = self.table.keys().filter(|key| !keys.contains(&key.as_str()));
        unknown.map(|key| self.finding(key, Outcome::Unknown)).collect()
    }

    fn translated(&self, key: &str, target: Vec<String>, items: Vec<String>) -> Finding {
        let value = Some(Value::Array(items.into_iter().map(Value::String).collect()));
        self.finding(key, Outcome::Translated { target, value })
    }

    fn finding(&self, key: &str, outcome: Outcome) -> Finding {
        let key = format!("registry.{key} ({})", self.prefix);
        Finding { key, place: Some((self.setting.file.to_path_buf(), self.setting.line)), outcome }
    }
}

fn text<'a>(table: &'a Table, key: &str) -> &'a str {
    table.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(table: &Table, key: &str) -> bool {
    table.get(key).and_then(Value::as_bool).unwrap_or(false)
}
