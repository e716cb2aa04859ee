//! File names with wildcards, as `imports` of containerd has them.

/// Whether a name matches a pattern with `*` (any characters) and `?` (one character).
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n, mut retry) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match retry {
                // The last `*` takes one more character.
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    p = star + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_and_question_marks_are_wildcards() {
        assert!(matches("*.toml", "a.toml") && matches("*", "") && matches("a?c*", "abcd") && matches("*b*b", "abcb"));
        assert!(!matches("*.toml", "a.tom") && !matches("?", "") && !matches("a", "ab"));
    }
}
