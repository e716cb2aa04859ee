//! Where in a JSON text something is, for messages: the parser gives line and column, people want the property.

/// The property that a line and a column (both from 1, as serde_json counts) are in: `linux.namespaces[0].type`. Empty
/// for the text itself. The text is well-formed up to there.
pub(crate) fn at(text: &[u8], line: usize, column: usize) -> String {
    let start: usize = text.split_inclusive(|byte| *byte == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    let mut way: Vec<Step> = Vec::new();
    let mut rest = &text[..text.len().min(start + column)];
    while let [byte, after @ ..] = rest {
        rest = after;
        match byte {
            b'{' => way.push(Step::Key(Vec::new())),
            b'[' => way.push(Step::Index(0)),
            b'}' | b']' if !rest.is_empty() => drop(way.pop()),
            // An object that is complete but lacks a member: the object itself is meant, not its last member.
            b'}' => {
                if let Some(Step::Key(key)) = way.last_mut() {
                    key.clear();
                }
            }
            b',' => {
                if let Some(Step::Index(index)) = way.last_mut() {
                    *index += 1;
                }
            }
            b'"' => {
                let (string, after) = string(rest);
                let is_key = after.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':');
                if let Some(Step::Key(key)) = way.last_mut().filter(|_| is_key) {
                    *key = string.to_vec();
                }
                rest = after;
            }
            _ => {}
        }
    }
    way.iter().fold(String::new(), |path, step| match step {
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

/// Up to the closing quotation mark, and what follows it.
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
    fn the_property_is_named() {
        for (text, path) in [
            (r#"{"a\"[{": [1, {"b": 2}], "list": [{"number": 1}, {"number": "x"}]}"#, "list[1].number"),
            ("{\n \"list\": [\n  {\"x\": \"{,\",\n \"number\": -1}]}", "list[0].number"),
            (r#"{"list": 7}"#, "list"),
            (r#"{"list": [{"number": 1}, {"other": 1}]}"#, "list[1]"),
            (r#"[]"#, "[0]"),
        ] {
            let error = serde_json::from_str::<Outer>(text).expect_err("it is wrong");
            assert_eq!(super::at(text.as_bytes(), error.line(), error.column()), path, "{error}");
        }
    }
}
