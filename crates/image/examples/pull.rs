//! Pulls an image into a directory, and prints the duration and the peak memory.
//!
//! `cargo run --release -p image --example pull -- DIRECTORY IMAGE`

use std::{path::Path, time::Instant};

#[tokio::main]
async fn main() -> Result<(), image::Error> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(name)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: pull DIRECTORY IMAGE");
        std::process::exit(2);
    };
    let store = image::Store::open(Path::new(&directory), image::Registries::default())?;
    let start = Instant::now();
    let image = store.pull(&name, None, None).await?;
    let took = start.elapsed();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default().trim().to_owned();
    println!("{} in {:.2} s, peak memory {peak}, {:?}", image.id, took.as_secs_f64(), store.usage());
    Ok(())
}
