use crate::results::Head;

/// Returns the command that repeats a run: that of the run, in its directory, or another one if that was recorded.
pub(crate) fn command(head: &Head) -> String {
    if let Some(repeat) = &head.repeat {
        return repeat.clone();
    }
    let words: Vec<String> = head.command.iter().map(|word| quote(word)).collect();
    format!("cd {} && {}", quote(&head.directory), words.join(" "))
}

fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@%+#".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) && !word.starts_with('#') {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn a_shell_reads_each_word_as_it_was() {
        let cases = [
            ("a=/run/a.sock#vm", "a=/run/a.sock#vm"),
            ("", "''"),
            ("two words", "'two words'"),
            ("it's", "'it'\\''s'"),
            ("$HOME", "'$HOME'"),
        ];
        for (word, quoted) in cases {
            assert_eq!(quote(word), quoted);
        }
    }
}
