use cri_proto::pinion::WhyRequest;
use serde_json::Value;

use crate::{
    Client, Failure,
    human::{age, short},
    output,
    table::{Table, printable},
};

/// Arguments of `pinion why`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name or id of a pod or container, namespace/name, or pod/container [default: all that is being made or is stuck]
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let request = WhyRequest { name: args.name.clone().unwrap_or_default() };
    let text = client.native.why(request).await?.into_inner().json;
    let found: Vec<Value> =
        serde_json::from_str(&text).map_err(|error| Failure::new(format!("the daemon's answer: {error}")))?;
    if client.json {
        output::json(&found)?;
        return Ok(0);
    }
    if found.is_empty() {
        output::line("nothing is being made, and nothing is stuck")?;
    }
    for (number, one) in found.iter().enumerate() {
        if number > 0 {
            output::line("")?;
        }
        show(one)?;
    }
    Ok(0)
}

fn show(why: &Value) -> Result<(), Failure> {
    let text = |key: &str| printable(why[key].as_str().unwrap_or_default());
    output::line(&format!("{} {} ({}): {}", text("kind"), text("name"), short(&text("id")), text("state")))?;
    let mut facts: Vec<(&str, String)> = Vec::new();
    if !text("stage").is_empty() {
        facts.push(("at", format!("{}, since {}", text("stage"), age(nanoseconds(&why["since"])))));
    }
    facts.extend(why["waits_for"].as_str().map(|what| ("waits for", printable(what))));
    facts.extend(Some(("failure", text("failure"))).filter(|(_, words)| !words.is_empty()));
    if why["end"].is_object() {
        let code = why["end"]["code"].as_i64().map_or_else(|| "unknown".to_owned(), |code| code.to_string());
        let words = printable(why["end"]["words"].as_str().unwrap_or_default());
        facts.push(("end", format!("{code}: {words}")));
    }
    if why["oom"].is_object() {
        facts.push(("out of memory", oom(&why["oom"])));
    }
    for denied in why["denied"].as_array().into_iter().flatten() {
        let call = denied["name"].as_str().map(|name| format!("system call {name}; kernel: ")).unwrap_or_default();
        facts.push(("denied", printable(&format!("{call}{}", denied["line"].as_str().unwrap_or_default()))));
    }
    if why["kind"] == "container" && why["denied"].as_array().is_none_or(Vec::is_empty) {
        let words = "nothing in the kernel's log; a system call that a filter answers with an error is never there";
        facts.push(("denied", words.to_owned()));
    }
    for (key, value) in facts {
        output::line(&format!("  {key:<14} {value}"))?;
    }
    timeline(&why["timeline"])
}

fn oom(oom: &Value) -> String {
    let whose = match oom["limit"].as_str().unwrap_or_default() {
        "container" => "the container's own limit",
        "pod" => "the pod's limit",
        "above" => "the limit of a group above the pod",
        "node" => "no limit: the node had no memory left",
        _ => "the kernel does not tell whose limit it was",
    };
    let group = oom["group"].as_str().map(|group| format!(" ({group})")).unwrap_or_default();
    let line = oom["line"].as_str().map(|line| format!("; kernel: {line}")).unwrap_or_default();
    printable(&format!("{whose}{group}{line}"))
}

fn timeline(stages: &Value) -> Result<(), Failure> {
    let stages: Vec<&Value> = stages.as_array().into_iter().flatten().collect();
    let Some(first) = stages.iter().map(|stage| nanoseconds(&stage["began"])).min() else { return Ok(()) };
    let mut table = Table::new(&["  AFTER", "TOOK", "STAGE"]);
    for stage in stages {
        let (began, ended) = (nanoseconds(&stage["began"]), nanoseconds(&stage["ended"]));
        let took = match ended {
            0 => format!("{} so far", span(crate::human::now() - began)),
            ended => span(ended - began),
        };
        let indent = if stage["part"] == true { "  " } else { "" };
        let failure = stage["failure"].as_str().filter(|words| !words.is_empty());
        let failure = failure.map(|words| format!(": {words}")).unwrap_or_default();
        let name = stage["name"].as_str().unwrap_or_default();
        table.row([format!("  {}", span(began - first)), took, format!("{indent}{name}{failure}")]);
    }
    table.print()
}

fn nanoseconds(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// Nanoseconds, as short as they are.
fn span(nanoseconds: i64) -> String {
    let microseconds = nanoseconds.max(0) / 1000;
    match microseconds {
        0..1000 => format!("{microseconds}us"),
        1000..1_000_000 => format!("{}.{}ms", microseconds / 1000, microseconds % 1000 / 100),
        1_000_000..120_000_000 => format!("{}.{}s", microseconds / 1_000_000, microseconds % 1_000_000 / 100_000),
        _ => crate::human::duration(nanoseconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_the_unit_that_fits() {
        assert_eq!([span(0), span(999_999), span(1_500_000)], ["0us", "999us", "1.5ms"]);
        assert_eq!([span(4_200_000_000), span(300_000_000_000)], ["4.2s", "5m"]);
    }
}
