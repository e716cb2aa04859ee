//! Pulls an image into a folder, and says how long it took and how much memory at most.
//!
//! `cargo run --release -p image --example pull -- FOLDER IMAGE`

use std::{path::Path, time::Instant};

#[tokio::main]
async fn main() -> Result<(), image::Error> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(name)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: pull FOLDER IMAGE");
        std::process::exit(2);
    };
    let store = image::Store::open(Path::new(&folder), image::Registries::default())?;
    let begun = Instant::now();
    let image = store.pull(&name, None, None).await?;
    let took = begun.elapsed();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default().trim().to_owned();
    println!("{} in {:.2} s, peak memory {peak}, {:?}", image.id, took.as_secs_f64(), store.usage());
    Ok(())
}
