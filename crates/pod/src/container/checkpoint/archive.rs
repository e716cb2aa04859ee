//! The archive: CRIU's images and data about the container, in the layout that `checkpointctl` and other engines read.

use std::{
    fs::{File, OpenOptions},
    io::{BufWriter, Read, Write},
    os::unix::fs::OpenOptionsExt,
    sync::Arc,
};

use serde_json::{Value, json};

use super::attempt::{Attempt, Guarded};
use crate::{Error, clock, error::failed, parts::Parts, stdio::log_file, store::Container};

/// Further files of CRIU and of this engine that go into the archive.
const FILES: [&str; 4] = ["dump.log", "stats-dump", "rootfs-diff.tar", "deleted.files"];

/// Writes the archive next to its location and renames it, so that no incomplete archive appears at the location.
pub(super) fn write(parts: &Parts, container: &Container, attempt: &Arc<Attempt>) -> Result<(), Error> {
    attempt.publish(pack(parts, container, attempt))
}

fn pack(parts: &Parts, container: &Container, attempt: &Arc<Attempt>) -> Result<(), Error> {
    let (directory, to) = (&attempt.directory, &attempt.partial);
    let file = attempt.check().and_then(|()| OpenOptions::new().write(true).create_new(true).mode(0o600).open(to));
    let file = file.map_err(failed(format_args!("create {}", to.display())))?;
    let mut tar = tar::Builder::new(BufWriter::new(Guarded { inner: file, attempt: Arc::clone(attempt) }));
    tar.follow_symlinks(false);
    let packed = (|| {
        text(&mut tar, "config.dump", &config(parts, container))?;
        text(&mut tar, "spec.dump", &spec(parts, container))?;
        text(&mut tar, "status.dump", &status(container))?;
        for name in FILES {
            // CRIU writes its statistics next to its log or to its images, depending on its version.
            let place = [directory.join(name), directory.join("checkpoint").join(name)];
            if let Some(path) = place.iter().find(|path| path.is_file()) {
                tar.append_path_with_name(path, name)?;
            }
        }
        if let Ok(Some(log)) = log_file::read_log(&container.metadata) {
            // Exactly its current length: the log keeps growing, and a container that mounts the log directory may
            // truncate it.
            let log = File::from(log);
            let length = log.metadata()?.len();
            let mut header = header(length);
            tar.append_data(&mut header, "container.log", log.chain(std::io::repeat(0)).take(length))?;
        }
        tar.append_dir_all("checkpoint", directory.join("checkpoint"))?;
        let file = tar.into_inner()?.into_inner()?.inner;
        file.sync_all()
    })();
    packed.map_err(failed(format_args!("write {}", to.display())))
}

fn header(length: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(length);
    header.set_mode(0o600);
    header.set_mtime(clock::now() / 1_000_000_000);
    header
}

fn text(tar: &mut tar::Builder<impl Write>, name: &str, value: &Value) -> std::io::Result<()> {
    let text = serde_json::to_vec_pretty(value)?;
    tar.append_data(&mut header(text.len() as u64), name, &text[..])
}

fn config(parts: &Parts, container: &Container) -> Value {
    let (metadata, config) = (&container.metadata, container.config());
    let image = parts.node.images.find(&metadata.image_id).ok().flatten();
    let tag = image.as_ref().and_then(|image| image.repo_tags.first().cloned());
    json!({
        "id": metadata.id,
        "name": config.name,
        "rootfsImage": config.image,
        "rootfsImageRef": image.and_then(|image| image.repo_digests.first().cloned()).unwrap_or(metadata.image_id.clone()),
        "rootfsImageName": tag.unwrap_or_else(|| config.user_specified_image.clone()),
        "runtime": "pinion",
        "createdTime": time(metadata.created_at),
        "checkpointedTime": time(clock::now()),
        "restoredTime": time(0),
        "restored": false,
    })
}

/// Returns the specification with the annotations by which readers identify the container and its pod.
fn spec(parts: &Parts, container: &Container) -> Value {
    let mut spec = container.spec(&parts.registry.records).unwrap_or_default();
    let mut annotate = |key: &str, value: &str| {
        spec.annotations.insert(format!("io.kubernetes.cri.{key}"), value.to_owned());
    };
    annotate("container-type", "container");
    annotate("container-name", &container.config().name);
    annotate("image-name", &container.config().image);
    annotate("sandbox-id", container.metadata.sandbox.as_str());
    if let Ok(sandbox) = parts.registry.sandbox(&container.metadata.sandbox) {
        let name = &sandbox.config().name;
        annotate("sandbox-name", &name.name);
        annotate("sandbox-namespace", &name.namespace);
        annotate("sandbox-uid", &name.uid);
    }
    serde_json::to_value(spec).unwrap_or_default()
}

fn status(container: &Container) -> Value {
    let record = container.record();
    json!({
        "CreatedAt": container.metadata.created_at,
        "StartedAt": record.started_at,
        "FinishedAt": record.finished_at,
        "ExitCode": record.exit_code.unwrap_or(0),
        "Pid": record.pid,
        "Reason": record.reason,
        "Message": record.message,
    })
}

/// Formats nanoseconds since the epoch as RFC 3339.
fn time(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Converts days to a date of the Gregorian calendar; its years are counted from March here.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:09}Z", nanoseconds % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_are_formatted_as_rfc_3339() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(time(951_782_399_000_000_001), "2000-02-28T23:59:59.000000001Z");
        assert_eq!(time(951_868_800_000_000_000), "2000-03-01T00:00:00.000000000Z");
        assert_eq!(time(1_795_219_200_000_000_000), "2026-11-21T00:00:00.000000000Z");
    }
}
