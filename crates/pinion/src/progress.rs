//! A pull, as people see it: a bar per layer on a terminal, lines elsewhere.

use std::{collections::BTreeMap, io::Write, time::Duration};

use cri_proto::pinion::{PullProgress, PullRequest, pull_progress::Stage};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{Client, Failure, human, terminal};

/// Pulls an image and shows how far each layer is, on standard error; gives the image's id.
pub(crate) async fn pull(client: &mut Client, request: PullRequest, quiet: bool) -> Result<String, Failure> {
    let reference = request.reference.clone();
    let mut shown = match (quiet, rustix::termios::isatty(std::io::stderr()) && terminal::is_output()) {
        (true, _) => Shown::Nothing,
        (false, true) => Shown::Bars(Bars::new()),
        (false, false) => Shown::Lines(BTreeMap::new()),
    };
    let mut messages = client.native.pull(request).await?.into_inner();
    while let Some(message) = messages.message().await? {
        if !message.image_id.is_empty() {
            shown.end();
            return Ok(message.image_id);
        }
        shown.layer(&message);
    }
    Err(Failure::new(format!("pull {reference}: the daemon ended it without an image")))
}

enum Shown {
    Nothing,
    Bars(Bars),
    /// The last stage of each layer that was told.
    Lines(BTreeMap<String, Stage>),
}

impl Shown {
    fn layer(&mut self, message: &PullProgress) {
        match self {
            Self::Nothing => {}
            Self::Bars(bars) => bars.layer(message),
            Self::Lines(told) => {
                let stage = message.stage();
                if told.insert(message.layer.clone(), stage) != Some(stage) {
                    // A progress line that nobody can read is no reason to end a pull.
                    let _ = writeln!(std::io::stderr(), "{}: {}", human::short(&message.layer), word(stage));
                }
            }
        }
    }

    fn end(&mut self) {
        if let Self::Bars(bars) = self {
            bars.end();
        }
    }
}

struct Bars {
    all: MultiProgress,
    layers: BTreeMap<String, ProgressBar>,
}

impl Bars {
    fn new() -> Self {
        Self { all: MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(15)), layers: BTreeMap::new() }
    }

    fn layer(&mut self, message: &PullProgress) {
        let bar = self.layers.entry(message.layer.clone()).or_insert_with(|| {
            let bar = self.all.add(ProgressBar::new(message.total));
            bar.set_style(style("{prefix:12} {msg:12} {bar:30} {bytes:>11}/{total_bytes}"));
            bar.set_prefix(human::short(&message.layer).to_owned());
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        bar.set_message(word(message.stage()));
        bar.set_length(message.total);
        match message.stage() {
            Stage::Done | Stage::Exists => {
                bar.set_style(style("{prefix:12} {msg:12} {total_bytes}"));
                bar.finish();
            }
            _ => bar.set_position(message.done),
        }
    }

    fn end(&self) {
        self.layers.values().filter(|bar| !bar.is_finished()).for_each(ProgressBar::abandon);
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("━╸ ")
}

fn word(stage: Stage) -> &'static str {
    match stage {
        Stage::Waiting => "waiting",
        Stage::Downloading => "downloading",
        Stage::Unpacking => "unpacking",
        Stage::Done => "done",
        Stage::Exists => "there already",
    }
}
