//! Shows the progress of a pull: one bar per layer on a terminal, lines otherwise.

use std::{collections::BTreeMap, io::Write, time::Duration};

use cri_proto::pinion::{PullProgress, PullRequest, pull_progress::Stage};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{Client, Failure, human, terminal};

/// Pulls an image, shows the progress of each layer on standard error, and returns the id of the image.
pub(crate) async fn pull(client: &mut Client, request: PullRequest, quiet: bool) -> Result<String, Failure> {
    let reference = request.reference.clone();
    let mut display = match (quiet, rustix::termios::isatty(std::io::stderr()) && terminal::is_output()) {
        (true, _) => Display::Nothing,
        (false, true) => Display::Bars(Bars::new()),
        (false, false) => Display::Lines(BTreeMap::new()),
    };
    let mut messages = client.native.pull(request).await?.into_inner();
    while let Some(message) = messages.message().await? {
        if !message.image_id.is_empty() {
            display.end();
            return Ok(message.image_id);
        }
        display.layer(&message);
    }
    Err(Failure::new(format!("pull {reference}: the daemon closed the stream without an image")))
}

enum Display {
    Nothing,
    Bars(Bars),
    /// The last printed stage of each layer.
    Lines(BTreeMap<String, Stage>),
}

impl Display {
    fn layer(&mut self, message: &PullProgress) {
        match self {
            Self::Nothing => {}
            Self::Bars(bars) => bars.layer(message),
            Self::Lines(printed) => {
                let stage = message.stage();
                if printed.insert(message.layer.clone(), stage) != Some(stage) {
                    // A progress line that cannot be written must not fail the pull.
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
        Stage::Exists => "already exists",
    }
}
