//! Attacks by symlinks in the image, standing still or exchanged while the runtime works.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use oci_tests::{Bundle, Case, PROBE, each_runtime};

use crate::{unharmed, victim};

each_runtime!(
    cve_2021_30465_exchanged_destination,
    cve_2021_30465_works_on_a_weak_mount,
    destination_with_dots,
    destination_by_absolute_symlink,
    destination_is_a_symlink_to_a_file,
    devices_of_the_image_are_symlinks,
    dev_is_a_symlink,
    masked_path_is_a_symlink,
    cwd_is_a_symlink,
    root_entries_are_symlinks,
);

/// The set-up of the proof of concept: a volume in which one name is now a directory, now a way out.
struct Exchange {
    volume: PathBuf,
    evil: PathBuf,
    sources: PathBuf,
}

impl Exchange {
    fn new(case: &Case) -> Self {
        let volume = case.directory().join("volume");
        let (evil, sources) = (case.directory().join("evil"), case.directory().join("sources"));
        for directory in [volume.join("swap/target"), evil.clone(), sources.join("target")] {
            fs::create_dir_all(directory).expect("ours");
        }
        fs::write(evil.join("evil"), "breach\n").expect("ours");
        fs::write(sources.join("target/good"), "fine\n").expect("ours");
        let up = "../".repeat(12);
        symlink(format!("{up}{}", sources.to_str().expect("ASCII").trim_start_matches('/')), volume.join("other"))
            .expect("ours");
        Self { volume, evil, sources }
    }

    /// Where the first mount lands, if it goes astray, the second is taken from.
    fn mounts(&self, bundle: &mut Bundle) {
        let text = |path: &Path| path.to_str().expect("ASCII").to_owned();
        bundle.mount("/data", "bind", &text(&self.volume), &["rbind", "rw"]);
        bundle.mount("/data/swap/target", "bind", &text(&self.evil), &["bind"]);
        bundle.mount("/check", "bind", &text(&self.sources.join("target")), &["bind"]);
    }
}

fn cve_2021_30465_exchanged_destination(case: &Case) {
    let exchange = Exchange::new(case);
    let probe = case.directory().join("probe");
    fs::write(&probe, PROBE).expect("ours");
    fs::set_permissions(&probe, fs::Permissions::from_mode(0o755)).expect("ours");
    let mut racer = Command::new(&probe);
    racer.arg("exchange").arg(exchange.volume.join("swap")).arg(exchange.volume.join("other"));
    let mut racer = case.spawn(&mut racer);
    let mut bad = Vec::new();
    for _ in 0..20 {
        let mut bundle = case.script("ls /check");
        exchange.mounts(&mut bundle);
        let container = case.container(bundle);
        let outcome = container.run();
        if outcome.stdout.contains("evil") {
            bad.push(outcome);
        }
        case.call(&["delete", "--force", &container.id]);
    }
    racer.kill();
    case.wait(&racer);
    assert!(bad.is_empty(), "a mount went astray: {bad:?}");
}

fn cve_2021_30465_works_on_a_weak_mount(case: &Case) {
    // What a runtime does that mounts by path: the second mount's source is the attacker's.
    let exchange = Exchange::new(case);
    let (evil, target) = (exchange.evil.to_str().expect("ASCII"), exchange.sources.join("target"));
    let through = exchange.volume.join("other/target");
    let script = r#"mount --bind "$0" "$1" && ls "$2""#;
    let (through, target) = (through.to_str().expect("ASCII"), target.to_str().expect("ASCII"));
    let seen = case.program("unshare", &["--mount", "sh", "-c", script, evil, through, target]);
    assert_eq!(seen.ok(), "evil\n");
}

fn bind(case: &Case, bundle: &mut Bundle, destination: &str) {
    let source = case.directory().join("given");
    fs::create_dir_all(&source).expect("ours");
    fs::write(source.join("given"), "given\n").expect("ours");
    bundle.mount(destination, "bind", source.to_str().expect("ASCII"), &["bind"]);
}

fn destination_with_dots(case: &Case) {
    let (directory, _) = victim(case);
    let path = directory.to_str().expect("ASCII");
    for destination in [format!("/../../../../../../../..{path}"), format!("/tmp/../../../../../..{path}/made")] {
        let mut bundle = case.script("true");
        bind(case, &mut bundle, &destination);
        case.container(bundle).run();
        unharmed(case);
    }
}

fn destination_by_absolute_symlink(case: &Case) {
    let (directory, _) = victim(case);
    for (link, to, below) in [
        ("/out", directory.clone(), ""),
        ("/out", directory.clone(), "/made/here"),
        ("/out", directory.join("new"), "/x"),
    ] {
        let mut bundle = case.script("true");
        symlink(&to, bundle.path(link)).expect("ours");
        bind(case, &mut bundle, &format!("{link}{below}"));
        bundle.mount(&format!("{link}{below}/tmpfs"), "tmpfs", "tmpfs", &[]);
        case.container(bundle).run();
        unharmed(case);
    }
}

fn destination_is_a_symlink_to_a_file(case: &Case) {
    let (directory, _) = victim(case);
    let mut bundle = case.script("cat /etc/passwd");
    fs::remove_file(bundle.path("/etc/passwd")).expect("ours");
    symlink(directory.join("file"), bundle.path("/etc/passwd")).expect("ours");
    let source = case.file("given", "given\n");
    bundle.mount("/etc/passwd", "bind", &source, &["bind", "rw"]);
    let outcome = case.container(bundle).run();
    assert!(!outcome.stdout.contains("of the host alone"), "{outcome:?}");
    unharmed(case);
}

/// Leaves the image's `/dev` as it is.
fn without_dev(bundle: &mut Bundle) {
    let mounts = bundle.spec["mounts"].as_array_mut().expect("mounts");
    mounts.retain(|mount| !mount["destination"].as_str().expect("a path").starts_with("/dev"));
}

fn devices_of_the_image_are_symlinks(case: &Case) {
    let (directory, _) = victim(case);
    let mut bundle = case.script("echo x > /dev/null; cat /dev/zero | head -c 1 > /dev/null; true");
    without_dev(&mut bundle);
    for name in ["null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "fd", "stdin", "core"] {
        symlink(directory.join(if name == "zero" { "made" } else { "file" }), bundle.path("/dev").join(name))
            .expect("ours");
    }
    case.container(bundle).run();
    unharmed(case);
}

fn dev_is_a_symlink(case: &Case) {
    let (directory, _) = victim(case);
    for mounted in [true, false] {
        let mut bundle = case.script("true");
        fs::remove_dir(bundle.path("/dev")).expect("ours");
        symlink(&directory, bundle.path("/dev")).expect("ours");
        if !mounted {
            without_dev(&mut bundle);
        }
        case.container(bundle).run();
        unharmed(case);
    }
}

fn masked_path_is_a_symlink(case: &Case) {
    let (directory, text) = victim(case);
    let mut bundle = case.script("true");
    symlink(directory.join("file"), bundle.path("/masked")).expect("ours");
    bundle.spec["linux"]["maskedPaths"] = serde_json::json!(["/masked"]);
    bundle.spec["linux"]["readonlyPaths"] = serde_json::json!(["/masked"]);
    case.container(bundle).run();
    assert_eq!(fs::read_to_string(directory.join("file")).expect("it is there"), text);
    unharmed(case);
}

fn cwd_is_a_symlink(case: &Case) {
    let (directory, _) = victim(case);
    let mut bundle = case.script("cat file made/file 2>/dev/null; touch made-here");
    symlink(&directory, bundle.path("/work")).expect("ours");
    bundle.spec["process"]["cwd"] = serde_json::json!("/work");
    let outcome = case.container(bundle).run();
    assert!(!outcome.stdout.contains("of the host alone"), "{outcome:?}");
    unharmed(case);
}

fn root_entries_are_symlinks(case: &Case) {
    let (directory, _) = victim(case);
    for name in ["sys", "proc", "tmp", "run"] {
        let mut bundle = case.script("true");
        fs::remove_dir(bundle.path(name)).expect("ours");
        symlink(&directory, bundle.path(name)).expect("ours");
        bundle.mount("/run", "tmpfs", "tmpfs", &["tmpcopyup"]);
        case.container(bundle).run();
        unharmed(case);
    }
}
