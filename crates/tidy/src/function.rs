use crate::Source;

/// A function with its place and length.
#[derive(Debug)]
pub struct Function {
    /// Name without its path.
    pub name: String,
    /// Line of the signature, counted from 1.
    pub line: usize,
    /// Number of lines from the signature to the closing brace, both included.
    pub length: usize,
}

/// Lists every function that has a body. Relies on rustfmt's layout: the closing brace is on a line by itself, indented
/// like the signature.
pub fn functions(source: &Source) -> Vec<Function> {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut functions = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = name_of(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let close = format!("{indent}}}");
        let body = lines[index..]
            .iter()
            .position(|l| **l == close || l.ends_with(';') && !l.starts_with(&format!("{indent} ")));
        if let Some(length) = body {
            functions.push(Function { name, line: index + 1, length: length + 1 });
        }
    }
    functions
}

fn name_of(line: &str) -> Option<String> {
    let mut rest = line.trim_start();
    for word in ["pub ", "pub(crate) ", "pub(super) ", "const ", "async ", "unsafe ", "extern \"C\" "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let rest = rest.strip_prefix("fn ")?;
    Some(rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?.to_owned())
}
