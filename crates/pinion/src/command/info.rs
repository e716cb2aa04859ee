use cri_proto::pinion::InfoRequest;
use serde_json::Value;

use crate::{Client, Failure, output};

/// Arguments of `pinion info`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(mut client: Client) -> Result<u8, Failure> {
    let text = client.native.info(InfoRequest {}).await?.into_inner().json;
    let info: Value = serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("parse the response of the daemon: {error}")))?;
    if client.json {
        output::json(&info)?;
        return Ok(0);
    }
    let mut lines = Vec::new();
    flatten("", &info, &mut lines);
    let width = lines.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    output::lines(lines.iter().map(|(key, value)| format!("{key:width$}  {value}").trim_end().to_owned()))?;
    Ok(0)
}

/// Flattens nested objects into dotted keys: `{"a": {"b": 1}}` becomes `a.b  1`.
fn flatten(prefix: &str, value: &Value, lines: &mut Vec<(String, String)>) {
    let key = |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| flatten(&key(name), value, lines)),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            lines.push((prefix.to_owned(), items.join(", ")));
        }
        // A condition that is true has an empty message, which gets no line.
        Value::String(text) if text.is_empty() => {}
        other => lines.push((prefix.to_owned(), plain(other))),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
