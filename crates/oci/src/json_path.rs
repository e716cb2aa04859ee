//! Converts the line and column of a parse error to the property, for error messages.

/// Returns the property at a line and a column (both counted from 1, as in serde_json), such as
/// `linux.namespaces[0].type`; empty for the top-level value. The text must be well-formed up to this position.
pub(crate) fn at(text: &[u8], line: usize, column: usize) -> String {
    let start: usize = text.split_inclusive(|byte| *byte == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    let mut path: Vec<Step> = Vec::new();
    let mut rest = &text[..text.len().min(start + column)];
    while let [byte, after @ ..] = rest {
        rest = after;
        match byte {
            b'{' => path.push(Step::Key(Vec::new())),
            b'[' => path.push(Step::Index(0)),
            b'}' | b']' if !rest.is_empty() => drop(path.pop()),
            // A complete object that lacks a member: return the object itself, not its last member.
            b'}' => {
                if let Some(Step::Key(key)) = path.last_mut() {
                    key.clear();
                }
            }
            b',' => {
                if let Some(Step::Index(index)) = path.last_mut() {
                    *index += 1;
                }
            }
            b'"' => {
                let (string, after) = string(rest);
                let is_key = after.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':');
                if let Some(Step::Key(key)) = path.last_mut().filter(|_| is_key) {
                    *key = string.to_vec();
                }
                rest = after;
            }
            _ => {}
        }
    }
    path.iter().fold(String::new(), |path, step| match step {
        Step::Index(index) => format!("{path}[{index}]"),
        Step::Key(key) if path.is_empty() => String::from_utf8_lossy(key).into_owned(),
        Step::Key(key) if key.is_empty() => path,
        Step::Key(key) => format!("{path}.{}", String::from_utf8_lossy(key)),
    })
}

enum Step {
    Key(Vec<u8>),
    Index(usize),
}

/// Splits the text at the closing quotation mark of a string.
fn string(text: &[u8]) -> (&[u8], &[u8]) {
    let mut escaped = false;
    let end = text.iter().position(|byte| {
        let closes = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        closes
    });
    match end {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text, &[]),
    }
}

#[cfg(test)]
mod tests {
    #[derive(Debug, serde::Deserialize)]
    struct Outer {
        #[serde(rename = "list")]
        _list: Vec<Inner>,
    }

    #[derive(Debug, serde::Deserialize)]
    struct Inner {
        #[serde(rename = "number")]
        _number: u32,
    }

    #[test]
    fn the_property_is_found() {
        for (text, path) in [
            (r#"{"a\"[{": [1, {"b": 2}], "list": [{"number": 1}, {"number": "x"}]}"#, "list[1].number"),
            ("{\n \"list\": [\n  {\"x\": \"{,\",\n \"number\": -1}]}", "list[0].number"),
            (r#"{"list": 7}"#, "list"),
            (r#"{"list": [{"number": 1}, {"other": 1}]}"#, "list[1]"),
            (r#"[]"#, "[0]"),
        ] {
            let error = serde_json::from_str::<Outer>(text).expect_err("the text is invalid");
            assert_eq!(super::at(text.as_bytes(), error.line(), error.column()), path, "{error}");
        }
    }
}
