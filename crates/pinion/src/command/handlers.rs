mod check;

use cri_proto::{
    REPORT_FORMAT,
    pinion::{HandlerInfo, InfoRequest},
};
use serde_json::{Map, Value, json};

use crate::{Client, Failure, output, report::check_format, table::Table};

/// Arguments of `pinion handlers`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Run a small container with a handler, and report what works
    Check(check::Args),
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let handlers = handlers(&mut client).await?;
    match args.verb {
        Some(Verb::Check(args)) => check::run(client, args, &handlers).await,
        None if client.json => {
            output::json(&handlers.iter().map(json).collect::<Vec<_>>())?;
            Ok(0)
        }
        None => {
            let mut table = Table::new(&["NAME", "KIND", "BINARY", "VERSION", "FEATURES"]);
            for handler in &handlers {
                let name = if handler.name.is_empty() { "(default)" } else { &handler.name };
                let features = if handler.problem.is_empty() { described(handler) } else { handler.problem.clone() };
                table.row([name, &handler.kind, &handler.binary, &handler.version, &features]);
            }
            table.print()?;
            Ok(0)
        }
    }
}

async fn handlers(client: &mut Client) -> Result<Vec<HandlerInfo>, Failure> {
    let response = client.native.info(InfoRequest { format: REPORT_FORMAT }).await?.into_inner();
    check_format("handlers", response.format)?;
    Ok(response.handler_details)
}

/// Returns the names of the features that a handler has, for people.
fn supported(handler: &HandlerInfo) -> String {
    let has = handler.features.iter().filter(|feature| feature.supported == Some(true));
    let names: Vec<&str> = has.map(|feature| feature.name.as_str()).collect();
    match (handler.kind.as_str(), names.is_empty()) {
        ("native", _) => "all".to_owned(),
        (_, true) => "unknown".to_owned(),
        (_, false) => names.join(", "),
    }
}

/// Returns the features of a handler, and the overhead for its RuntimeClass.
fn described(handler: &HandlerInfo) -> String {
    let features = supported(handler);
    match quantities(handler) {
        Some((memory, cpu)) => format!("{features}; overhead: memory {memory}, cpu {cpu}"),
        None => features,
    }
}

/// Returns the overhead of a handler as quantities of Kubernetes: memory and cpu.
fn quantities(handler: &HandlerInfo) -> Option<(String, String)> {
    let overhead = handler.overhead.as_ref()?;
    Some((format!("{}Mi", overhead.memory.div_ceil(1 << 20)), format!("{}m", overhead.cpu_millis)))
}

/// Returns a handler for `pinion info`: of the features only the names of those that it has.
pub(crate) fn summary(handler: &HandlerInfo) -> Value {
    let has = handler.features.iter().filter(|feature| feature.supported == Some(true));
    json!({
        "kind": handler.kind,
        "binary": handler.binary,
        "version": handler.version,
        "problem": handler.problem,
        "features": has.map(|feature| feature.name.as_str()).collect::<Vec<_>>(),
    })
}

/// Returns a handler for programs. A feature that the runtime does not report is null.
fn json(handler: &HandlerInfo) -> Value {
    let features = handler.features.iter().map(|feature| (feature.name.clone(), json!(feature.supported)));
    json!({
        "name": handler.name,
        "kind": handler.kind,
        "binary": handler.binary,
        "version": handler.version,
        "problem": handler.problem,
        "features": features.collect::<Map<_, _>>(),
        "overhead": quantities(handler).map(|(memory, cpu)| json!({"memory": memory, "cpu": cpu})),
    })
}

#[cfg(test)]
mod tests {
    use cri_proto::pinion::{HandlerFeature, PodOverhead};

    use super::*;

    #[test]
    fn features_that_are_not_reported_are_null_and_not_shown() {
        let feature = |name: &str, supported| HandlerFeature { name: name.to_owned(), supported };
        let features = vec![feature("seccomp", Some(true)), feature("selinux", Some(false)), feature("systemd", None)];
        let handler = HandlerInfo { name: "x".into(), kind: "oci".into(), features, ..HandlerInfo::default() };
        assert_eq!(supported(&handler), "seccomp");
        assert_eq!(json(&handler)["features"], json!({"seccomp": true, "selinux": false, "systemd": null}));
        assert_eq!(supported(&HandlerInfo { kind: "native".into(), ..HandlerInfo::default() }), "all");
        assert_eq!(supported(&HandlerInfo { kind: "oci".into(), ..HandlerInfo::default() }), "unknown");
        assert_eq!(json(&handler)["overhead"], json!(null));
        let overhead = Some(PodOverhead { memory: 384 << 20, cpu_millis: 250 });
        let handler = HandlerInfo { overhead, ..handler };
        assert_eq!(described(&handler), "seccomp; overhead: memory 384Mi, cpu 250m");
        assert_eq!(json(&handler)["overhead"], json!({"memory": "384Mi", "cpu": "250m"}));
    }
}
