//! `pinion handlers check`: a container of a handler from its creation to its removal, and what works on the way.

mod containers;
mod sample_image;
mod steps;

use cri_proto::pinion::HandlerInfo;
use serde_json::json;

use crate::{
    Client, Failure,
    daemon::{config::Config, monitor},
    output,
};
use containers::Checked;
use steps::Steps;

/// Arguments of `pinion handlers check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the handler; "" for the default one
    #[arg(value_name = "HANDLER")]
    name: String,
    /// Image on this node [default: one that is made for the check]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
}

/// Runs all steps, prints them, and removes what it created. Returns 1 if a step failed.
pub(super) async fn run(mut client: Client, args: Args, handlers: &[HandlerInfo]) -> Result<u8, Failure> {
    let handler = handlers.iter().find(|handler| handler.name == args.name).ok_or_else(|| {
        let names: Vec<String> = handlers.iter().map(|handler| format!("{:?}", handler.name)).collect();
        Failure::new(format!("handler {:?} is not configured; configured: {}", args.name, names.join(", ")))
    })?;
    let mut steps = Steps::new(client.json);
    let configured = Config::load(None).ok().and_then(|config| config.monitor);
    let program = monitor::find(configured.as_deref())?;
    let (image, mounted) = match &args.image {
        Some(image) => (image.clone(), Some(program)),
        None => (sample_image::import(&mut client, &program).await?, None),
    };
    let new = || Checked::new(client.clone(), &handler.name, &image, mounted.clone());
    let outcome = check(handler, new, args.image.is_none(), &mut steps).await;
    if args.image.is_none() {
        sample_image::remove(&mut client).await;
    }
    outcome?;
    let failed = steps.failed();
    if client.json {
        output::json(&json!({"handler": handler.name, "version": handler.version, "steps": steps.json()}))?;
    }
    Ok(u8::from(failed))
}

/// Runs the steps. An error is one of the check itself.
async fn check(
    handler: &HandlerInfo,
    new: impl Fn() -> Checked,
    has_module: bool,
    steps: &mut Steps,
) -> Result<(), Failure> {
    let mut checked = new();
    checked.pod(steps, false).await?;
    if checked.has_pod() {
        checked.container(steps).await?;
        checked.terminal(steps).await?;
        if handler.kind == "wasm" && has_module {
            checked.module(steps).await?;
        }
    }
    checked.remove(steps).await?;
    let claims = |name: &str| handler.features.iter().any(|one| one.name == name && one.supported == Some(true));
    if claims("userNamespaces") || handler.kind == "native" {
        let mut checked = new();
        checked.pod(steps, true).await?;
        if checked.has_pod() {
            checked.user_namespace(steps).await?;
        }
        checked.remove(steps).await?;
    }
    Ok(())
}
