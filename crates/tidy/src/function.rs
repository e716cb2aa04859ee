use crate::Source;

/// A function with its place and length.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// First line, from 1.
    pub line: usize,
    /// Lines from the signature to the closing brace.
    pub length: usize,
}

/// Every function with a body, found by the layout that rustfmt gives: the closing brace stands alone at the
/// indentation of the signature.
pub fn functions(source: &Source) -> Vec<Function> {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = name_of(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let close = format!("{indent}}}");
        let body = lines[index..]
            .iter()
            .position(|l| **l == close || l.ends_with(';') && !l.starts_with(&format!("{indent} ")));
        if let Some(length) = body {
            found.push(Function { name, line: index + 1, length: length + 1 });
        }
    }
    found
}

fn name_of(line: &str) -> Option<String> {
    let mut rest = line.trim_start();
    for word in ["pub ", "pub(crate) ", "pub(super) ", "const ", "async ", "unsafe ", "extern \"C\" "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let rest = rest.strip_prefix("fn ")?;
    Some(rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?.to_owned())
}
