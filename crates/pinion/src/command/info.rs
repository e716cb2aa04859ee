mod json;

use cri_proto::{REPORT_FORMAT, pinion::InfoRequest};
use serde_json::Value;

use crate::{Client, Failure, output, report::check_format};

/// Arguments of `pinion info`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(mut client: Client) -> Result<u8, Failure> {
    let response = client.native.info(InfoRequest { format: REPORT_FORMAT }).await?.into_inner();
    check_format("info", response.format)?;
    let info = json::info(&response);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_a_line_for_each_value_and_none_for_an_empty_message() {
        let mut lines = Vec::new();
        flatten("", &json::info(&json::tests::sample()), &mut lines);
        let value = |key: &str| lines.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        assert_eq!(value("daemon.configuration.files"), Some("/etc/pinion/config.toml"));
        assert_eq!(value("handlers"), Some(", pinion"));
        assert_eq!(value("health.silentSeconds.monitor"), Some("2"));
        assert_eq!((value("networkReady.ready"), value("networkReady.reason")), (Some("true"), None));
        assert_eq!((value("monitor.contract"), value("userNamespaces")), (Some("1.6"), Some("true")));
    }
}
