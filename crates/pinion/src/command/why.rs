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
    /// Name or id of a pod or container, namespace/name, or pod/container [default: all that are being created or
    /// stuck]
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let request = WhyRequest { name: args.name.clone().unwrap_or_default() };
    let text = client.native.why(request).await?.into_inner().json;
    let objects: Vec<Value> = serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("parse the response of the daemon: {error}")))?;
    if client.json {
        output::json(&objects)?;
        return Ok(0);
    }
    if objects.is_empty() {
        output::line("no pod or container is being created or stuck")?;
    }
    for (number, object) in objects.iter().enumerate() {
        if number > 0 {
            output::line("")?;
        }
        show(object)?;
    }
    Ok(0)
}

fn show(why: &Value) -> Result<(), Failure> {
    let text = |key: &str| printable(why[key].as_str().unwrap_or_default());
    output::line(&format!("{} {} ({}): {}", text("kind"), text("name"), short(&text("id")), text("state")))?;
    let mut facts: Vec<(&str, String)> = Vec::new();
    if !text("stage").is_empty() {
        facts.push(("stage", format!("{}, for {}", text("stage"), age(nanoseconds(&why["since"])))));
    }
    facts.extend(why["waits_for"].as_str().map(|cause| ("waiting for", printable(cause))));
    facts.extend(Some(("failure", text("failure"))).filter(|(_, message)| !message.is_empty()));
    if why["end"].is_object() {
        let code = why["end"]["code"].as_i64().map_or_else(|| "unknown".to_owned(), |code| code.to_string());
        let message = printable(why["end"]["words"].as_str().unwrap_or_default());
        facts.push(("exit", format!("{code}: {message}")));
    }
    if why["oom"].is_object() {
        facts.push(("out of memory", oom(&why["oom"])));
    }
    for denied in why["denied"].as_array().into_iter().flatten() {
        let call = denied["name"].as_str().map(|name| format!("system call {name}; kernel: ")).unwrap_or_default();
        facts.push(("denied", printable(&format!("{call}{}", denied["line"].as_str().unwrap_or_default()))));
    }
    if why["kind"] == "container" && why["denied"].as_array().is_none_or(Vec::is_empty) {
        let message =
            "nothing in the kernel log; it never contains system calls that a seccomp filter fails with an errno";
        facts.push(("denied", message.to_owned()));
    }
    for (key, value) in facts {
        output::line(&format!("  {key:<14} {value}"))?;
    }
    timeline(&why["timeline"])
}

fn oom(oom: &Value) -> String {
    let limit = match oom["limit"].as_str().unwrap_or_default() {
        "container" => "limit of the container",
        "pod" => "limit of the pod",
        "above" => "limit of a cgroup above the pod",
        "node" => "no limit: the node was out of memory",
        _ => "the kernel did not report which limit was reached",
    };
    let group = oom["group"].as_str().map(|group| format!(" ({group})")).unwrap_or_default();
    let line = oom["line"].as_str().map(|line| format!("; kernel: {line}")).unwrap_or_default();
    printable(&format!("{limit}{group}{line}"))
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
        let failure = stage["failure"].as_str().filter(|message| !message.is_empty());
        let failure = failure.map(|message| format!(": {message}")).unwrap_or_default();
        let name = stage["name"].as_str().unwrap_or_default();
        table.row([format!("  {}", span(began - first)), took, format!("{indent}{name}{failure}")]);
    }
    table.print()
}

fn nanoseconds(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// Formats nanoseconds in the unit that fits.
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
    fn spans_are_formatted_in_the_unit_that_fits() {
        assert_eq!([span(0), span(999_999), span(1_500_000)], ["0us", "999us", "1.5ms"]);
        assert_eq!([span(4_200_000_000), span(300_000_000_000)], ["4.2s", "5m"]);
    }
}
