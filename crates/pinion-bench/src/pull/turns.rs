use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use cri_proto::v1::{ImageSpec, PullImageRequest, RemoveImageRequest};

use super::{NamedImage, first_output};
use crate::{
    call::limited,
    engine::{Engine, Failure},
    machine::Counters,
    pods::{self, Shape},
    results::{Description, Metric, TurnLog},
    run::Scenario,
};

/// Timeout of a call. Large images are pulled by one.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Pulls of images.
pub(super) struct Pull {
    pub(super) engines: Vec<Engine>,
    pub(super) images: Vec<NamedImage>,
    /// The pods with each image.
    pub(super) shapes: Vec<Shape>,
    pub(super) rounds: usize,
}

impl Pull {
    /// Measures an image. Returns the metric that failed, with the cause.
    async fn image(
        &self,
        engine: &Engine,
        (index, round): (usize, usize),
        log: &mut TurnLog,
    ) -> Result<(), (String, String)> {
        let NamedImage { name, reference } = &self.images[index];
        let failed = |metric: String| move |cause: String| (metric, cause);
        remove(engine, reference).await.map_err(failed(missing(name)))?;
        let before = Counters::after_sync();
        let time = pull(engine, reference).await.map_err(failed(missing(name)))?;
        let counters = Counters::after_sync().since(before);
        log.add_ms(&missing(name), None, time);
        log.add(&written(name), None, counters.written as f64 / f64::from(1 << 20));
        log.add(&processor(name), None, counters.busy_ms as f64);
        log.add_ms(&present(name), None, pull(engine, reference).await.map_err(failed(present(name)))?);
        remove(engine, reference).await.map_err(failed(output(name)))?;
        let start = Instant::now();
        pull(engine, reference).await.map_err(failed(output(name)))?;
        let pulled = start.elapsed();
        let pod = format!("pull-{}-{index}-{round}", engine.number);
        let first = first_output::run(engine, &self.shapes[index], &pod).await.map_err(failed(output(name)))?;
        log.add_ms(&output(name), None, pulled + first);
        Ok(())
    }
}

async fn pull(engine: &Engine, reference: &str) -> Result<Duration, String> {
    let start = Instant::now();
    let request = PullImageRequest { image: Some(spec(reference)), ..Default::default() };
    limited("PullImage", TIMEOUT, engine.images().pull_image(request)).await?;
    Ok(start.elapsed())
}

async fn remove(engine: &Engine, reference: &str) -> Result<(), String> {
    let request = RemoveImageRequest { image: Some(spec(reference)) };
    limited("RemoveImage", TIMEOUT, engine.images().remove_image(request)).await.map(drop)
}

fn spec(reference: &str) -> ImageSpec {
    ImageSpec { image: reference.to_owned(), ..Default::default() }
}

fn missing(image: &str) -> String {
    format!("{image}: pull")
}

fn present(image: &str) -> String {
    format!("{image}: pull again")
}

fn output(image: &str) -> String {
    format!("{image}: pull until the first output")
}

fn written(image: &str) -> String {
    format!("{image}: written to disk by a pull")
}

fn processor(image: &str) -> String {
    format!("{image}: CPU of a pull, whole machine")
}

impl Scenario for Pull {
    fn description(&self) -> Description {
        let metrics = self.images.iter().flat_map(|NamedImage { name, .. }| {
            [
                Metric::lower(&missing(name), "ms").headline(),
                Metric::lower(&present(name), "ms"),
                Metric::lower(&output(name), "ms"),
                Metric::lower(&written(name), "MiB"),
                Metric::lower(&processor(name), "ms"),
            ]
        });
        let images = self.images.iter().map(|image| (format!("image {}", image.name), image.reference.clone()));
        Description {
            name: "pull".to_owned(),
            title: "Pulls of images".to_owned(),
            work: "An image is pulled that the engine does not have, and pulled again when it has it; then it is removed, pulled, and run in a pod until the \
                   first line of its container is in the log. CPU includes that of a registry on the same machine."
                .to_owned(),
            parameter: String::new(),
            common: "Images".to_owned(),
            settings: images.collect::<BTreeMap<_, _>>(),
            metrics: metrics.collect(),
            contestants: self.engines.iter().map(pods::contestant).collect(),
            rounds: self.rounds,
        }
    }

    async fn warm_up(&mut self, contestant: usize) -> Result<(), Failure> {
        for image in &self.images {
            pull(&self.engines[contestant], &image.reference).await.map_err(Failure)?;
        }
        Ok(())
    }

    async fn turn(&mut self, contestant: usize, round: usize, log: &mut TurnLog) {
        for image in 0..self.images.len() {
            if let Err((metric, cause)) = self.image(&self.engines[contestant], (image, round), log).await {
                log.fail(&metric, None, &cause);
            }
        }
    }

    async fn clean_up(&mut self) {
        for shape in &self.shapes {
            pods::remove_leftovers(&self.engines, shape).await;
        }
    }
}
