//! `pinion-bench pull`: pulls images that are missing and images that are there, and measures the time until the first output of a container.

mod first_output;
mod turns;

use crate::{
    engine::{Endpoint, Engine, Failure},
    pods::{self, Shape},
    run,
};
use turns::Pull;

/// Arguments of `pinion-bench pull`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Engine to measure, NAME=SOCKET or NAME=SOCKET#HANDLER; may be repeated. Ratios are those of the first to each other one.
    #[arg(long = "engine", required = true)]
    engines: Vec<Endpoint>,
    /// Image to pull, NAME=REFERENCE, with `echo`; may be repeated. All engines remove it, with all of its names, before they pull it, and have it
    /// afterwards.
    #[arg(long = "image", required = true)]
    images: Vec<NamedImage>,
    /// Number of rounds. The engines take turns in each, and none is always the first.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    #[command(flatten)]
    options: run::Options,
}

/// An image with a name for the tables, parsed from `NAME=REFERENCE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedImage {
    pub(crate) name: String,
    pub(crate) reference: String,
}

impl std::str::FromStr for NamedImage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, reference)) if !name.is_empty() && !reference.is_empty() => {
                Ok(Self { name: name.to_owned(), reference: reference.to_owned() })
            }
            _ => Err(format!("{text:?} is not NAME=REFERENCE")),
        }
    }
}

/// Runs all rounds and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.rounds == 0 {
        return Err(Failure("--rounds must be at least 1".to_owned()));
    }
    let mut engines = Vec::new();
    for (number, endpoint) in arguments.engines.iter().enumerate() {
        let mut engine = Engine::connect(endpoint).await?;
        engine.number = number;
        engines.push(engine);
    }
    let shapes: Vec<Shape> = arguments.images.iter().map(|image| Shape::new(&image.reference, false)).collect();
    let shape = shapes[0].clone();
    let mut pull = Pull { engines, images: arguments.images, shapes, rounds: arguments.rounds };
    // All of them have the same directory for logs.
    pods::drive(&mut pull, &shape, &arguments.options).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_a_name() {
        let image = NamedImage { name: "large".to_owned(), reference: "registry/image:1".to_owned() };
        assert_eq!("large=registry/image:1".parse(), Ok(image));
        assert!("large".parse::<NamedImage>().is_err() && "=x".parse::<NamedImage>().is_err());
    }
}
