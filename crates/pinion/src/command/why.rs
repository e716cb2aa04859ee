mod json;
mod text;

use cri_proto::{
    REPORT_FORMAT,
    pinion::{Explanation, Stage, WhyRequest, explanation::Kind},
};
use serde_json::Value;

use crate::{
    Client, Failure,
    human::{age, short},
    output,
    report::check_format,
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
    let request = WhyRequest { name: args.name.clone().unwrap_or_default(), format: REPORT_FORMAT };
    let response = client.native.why(request).await?.into_inner();
    check_format("why", response.format)?;
    let objects = response.explanations;
    if client.json {
        output::json(&objects.iter().map(json::explanation).collect::<Vec<Value>>())?;
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

fn show(why: &Explanation) -> Result<(), Failure> {
    let kind = if why.kind() == Kind::Pod { "pod" } else { "container" };
    let (name, state) = (printable(&why.name), text::state(why.state()));
    output::line(&format!("{kind} {name} ({}): {state}", short(&printable(&why.id))))?;
    for (key, value) in facts(why) {
        output::line(&format!("  {key:<14} {value}"))?;
    }
    timeline(&why.timeline)
}

fn facts(why: &Explanation) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if !why.stage.is_empty() {
        facts.push(("stage", format!("{}, for {}", printable(&why.stage), age(nanoseconds(why.since)))));
    }
    facts.extend(why.waits_for.as_ref().map(|wait| ("waiting for", printable(&text::wait(wait)))));
    facts.extend(Some(("failure", printable(&why.failure))).filter(|(_, message)| !message.is_empty()));
    if let Some(exit) = &why.exit {
        let code = exit.code.map_or_else(|| "unknown".to_owned(), |code| code.to_string());
        facts.push(("exit", format!("{code}: {}", printable(&exit.description))));
    }
    facts.extend(why.oom.as_ref().map(|oom| ("out of memory", printable(&text::oom(oom)))));
    for denied in &why.denied {
        let call = denied.name.as_ref().map(|name| format!("system call {name}; kernel: ")).unwrap_or_default();
        facts.push(("denied", printable(&format!("{call}{}", denied.line))));
    }
    if why.kind() == Kind::Container && why.denied.is_empty() {
        let message =
            "nothing in the kernel log; it never contains system calls that a seccomp filter fails with an errno";
        facts.push(("denied", message.to_owned()));
    }
    facts
}

fn timeline(stages: &[Stage]) -> Result<(), Failure> {
    let Some(first) = stages.iter().map(|stage| stage.began).min() else { return Ok(()) };
    let mut table = Table::new(&["  AFTER", "TOOK", "STAGE"]);
    for stage in stages {
        let took = match stage.duration {
            None => format!("{} so far", span(crate::human::now() - nanoseconds(stage.began))),
            Some(duration) => span(duration),
        };
        let indent = if stage.part { "  " } else { "" };
        let failure = if stage.failure.is_empty() { String::new() } else { format!(": {}", stage.failure) };
        let after = span(nanoseconds(stage.began - first));
        table.row([format!("  {after}"), took, format!("{indent}{}{failure}", stage.name)]);
    }
    table.print()
}

fn nanoseconds(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(0)
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
    use cri_proto::pinion::{ContainerExit, Denial, Wait, wait::What};

    use super::*;

    #[test]
    fn spans_are_formatted_in_the_unit_that_fits() {
        assert_eq!([span(0), span(999_999), span(1_500_000)], ["0us", "999us", "1.5ms"]);
        assert_eq!([span(4_200_000_000), span(300_000_000_000)], ["4.2s", "5m"]);
    }

    #[test]
    fn the_facts_about_an_object_are_shown_in_the_order_of_their_importance() {
        let exit = ContainerExit { code: Some(143), description: "SIGTERM, by Pinion".into(), ..Default::default() };
        let denial = Denial { name: Some("mount".into()), line: "audit: x".into(), ..Denial::default() };
        let why = Explanation {
            kind: Kind::Container.into(),
            stage: "ended".into(),
            since: u64::try_from(crate::human::now()).expect("after 1970"),
            waits_for: Some(Wait { what: Some(What::Exit(true)) }),
            failure: "a\tfailure".into(),
            exit: Some(exit),
            denied: vec![denial],
            ..Explanation::default()
        };
        let shown: Vec<String> = facts(&why).into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
        let failure = format!("failure: {}", printable("a\tfailure"));
        let expected = [
            "stage: ended, for 0s",
            "waiting for: its processes to exit",
            &failure,
            "exit: 143: SIGTERM, by Pinion",
            "denied: system call mount; kernel: audit: x",
        ];
        assert_eq!(shown, expected);
    }
}
