//! Credentials in a file with the format of Docker's `config.json`. Only those in the file are used: credential helpers
//! are not executed.

use std::{collections::BTreeMap, path::Path};

use base64::Engine;
use serde::Deserialize;

use super::hosts::bytes;
use crate::{Credentials, Error};

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    /// Base64 of `user:password`.
    #[serde(default)]
    auth: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default, rename = "identitytoken")]
    identity_token: String,
    #[serde(default, rename = "registrytoken")]
    registry_token: String,
}

/// Returns the credentials of a repository on a host: of the entry with the longest matching path, else of the host's.
pub(crate) fn find(file: &Path, host: &str, repository: &str) -> Result<Option<Credentials>, Error> {
    let invalid =
        |reason: &dyn std::fmt::Display| Error::invalid(format!("registries.auth_file {}: {reason}", file.display()));
    let text = bytes(file).map_err(|e| invalid(&e))?;
    // The text is secret, so the message only has the position of the error.
    let parsed: File = serde_json::from_slice(&text).map_err(|e| {
        invalid(&format_args!("not a valid file of credentials (line {}, column {})", e.line(), e.column()))
    })?;
    let name = format!("{host}/{repository}");
    let matched_length = |key: &String| {
        let key = normalize(key);
        let rest = name.strip_prefix(key.as_str());
        rest.filter(|rest| rest.is_empty() || rest.starts_with('/')).map(|_| key.len())
    };
    let best = parsed
        .auths
        .iter()
        .filter_map(|(key, entry)| Some((matched_length(key)?, key, entry)))
        .max_by_key(|(n, ..)| *n);
    let Some((_, key, entry)) = best else { return Ok(None) };
    entry
        .credentials()
        .map(Some)
        .ok_or_else(|| invalid(&format_args!("auths.{key:?}.auth: not base64 of user:password")))
}

/// Normalizes a key: `https://index.docker.io/v1/` → `docker.io`; `quay.io/team/` → `quay.io/team`.
fn normalize(key: &str) -> String {
    let bare = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let bare = bare.trim_end_matches('/');
    let bare = bare.strip_suffix("/v1").or_else(|| bare.strip_suffix("/v2")).unwrap_or(bare);
    match bare {
        "index.docker.io" | "registry-1.docker.io" => "docker.io".to_owned(),
        other => other.to_owned(),
    }
}

impl Entry {
    fn credentials(&self) -> Option<Credentials> {
        let (mut username, mut password) = (self.username.clone(), self.password.clone());
        if !self.auth.is_empty() {
            let pair = base64::engine::general_purpose::STANDARD.decode(&self.auth).ok()?;
            let pair = String::from_utf8(pair).ok()?;
            let (user, secret) = pair.split_once(':')?;
            (username, password) = (user.to_owned(), secret.trim_end_matches('\0').to_owned());
        }
        let (identity_token, registry_token) = (self.identity_token.clone(), self.registry_token.clone());
        Some(Credentials { username, password, identity_token, registry_token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_matching_entry_is_used() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = r#"{"credsStore": "x", "auths": {
            "https://index.docker.io/v1/": {"auth": "aHViOnB3"},
            "quay.io": {"username": "all", "password": "p"},
            "quay.io/team": {"auth": "dGVhbTpwOnE="}
        }}"#;
        std::fs::write(file.path(), text).unwrap();
        let user = |host: &str, repository: &str| {
            find(file.path(), host, repository).unwrap().map(|credentials| (credentials.username, credentials.password))
        };
        assert_eq!(user("docker.io", "library/busybox"), Some(("hub".into(), "pw".into())));
        assert_eq!(user("quay.io", "team/app"), Some(("team".into(), "p:q".into())));
        assert_eq!(user("quay.io", "teams/app"), Some(("all".into(), "p".into())));
        assert_eq!(user("quay.io:5000", "team/app"), None);
        std::fs::write(file.path(), r#"{"auths": {"a": {"auth": "secret!"}}}"#).unwrap();
        let error = find(file.path(), "a", "b").unwrap_err().message;
        assert!(error.contains("auths.\"a\".auth") && !error.contains("secret"), "{error}");
    }
}
