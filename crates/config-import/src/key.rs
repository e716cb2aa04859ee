//! Paths of keys as text: `plugins."io.containerd.cri.v1.runtime".cni.bin_dirs`.

/// Formats the path of a key as TOML does.
pub(crate) fn dotted<S: AsRef<str>>(path: &[S]) -> String {
    let is_bare =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    let part = |part: &S| match is_bare(part.as_ref()) {
        true => part.as_ref().to_owned(),
        false => format!("{:?}", part.as_ref()),
    };
    path.iter().map(part).collect::<Vec<_>>().join(".")
}

/// Splits the text of a key at the dots that are not in quotes.
pub(crate) fn parts(key: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = key;
    loop {
        let (part, after) = match rest.strip_prefix('"').and_then(|quoted| quoted.split_once('"')) {
            Some((part, after)) => (part, after),
            None => rest.split_at(rest.find('.').unwrap_or(rest.len())),
        };
        parts.push(part);
        match after.strip_prefix('.') {
            Some(next) => rest = next,
            None => return parts,
        }
    }
}

/// Whether a path is the one of a rule: `*` stands for one part, `**` at the end for one or more.
pub(crate) fn matches(rule: &str, path: &[String]) -> bool {
    let rule = parts(rule);
    let is_part = |(rule, part): (&&str, &String)| *rule == "*" || *rule == part.as_str();
    match rule.split_last() {
        Some((&"**", start)) => path.len() > start.len() && start.iter().zip(path).all(is_part),
        _ => path.len() == rule.len() && rule.iter().zip(path).all(is_part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(key: &str) -> Vec<String> {
        parts(key).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn a_key_is_split_outside_of_its_quotes() {
        let key = r#"plugins."io.containerd.cri.v1.runtime".cni"#;
        assert_eq!(parts(key), ["plugins", "io.containerd.cri.v1.runtime", "cni"]);
        assert_eq!(dotted(&parts(key)), key);
        assert_eq!(parts("a"), ["a"]);
    }

    #[test]
    fn wildcards_stand_for_whole_parts() {
        assert!(matches("a.*.c", &path("a.\"x.y\".c")) && !matches("a.*.c", &path("a.b")));
        assert!(matches("a.**", &path("a.b.c")) && !matches("a.**", &path("a")));
        assert!(matches("a.b", &path("a.b")) && !matches("a.b", &path("a.b.c")));
    }
}
