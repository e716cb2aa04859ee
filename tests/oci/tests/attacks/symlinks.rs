//! Attacks with symlinks in the image, either static or exchanged while the runtime sets up the container.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use oci_tests::{Bundle, Case, PROBE, each_runtime};

use crate::{assert_victim_unchanged, victim};

each_runtime!(
    cve_2021_30465_exchanged_destination,
    cve_2021_30465_works_on_mounts_by_path,
    destination_with_dots,
    destination_by_absolute_symlink,
    destination_is_a_symlink_to_a_file,
    devices_of_the_image_are_symlinks,
    dev_is_a_symlink,
    masked_path_is_a_symlink,
    cwd_is_a_symlink,
    root_entries_are_symlinks,
);

/// Setup of the proof of concept: a volume in which a name alternates between a directory and a symlink to the host.
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
            fs::create_dir_all(directory).expect("create a directory");
        }
        fs::write(evil.join("evil"), "breach\n").expect("write a file");
        fs::write(sources.join("target/good"), "fine\n").expect("write a file");
        let up = "../".repeat(12);
        symlink(
            format!("{up}{}", sources.to_str().expect("the path is ASCII").trim_start_matches('/')),
            volume.join("other"),
        )
        .expect("create a symlink");
        Self { volume, evil, sources }
    }

    /// Adds the mounts of the attack. If the second mount follows the symlink, it replaces the source of the third.
    fn mounts(&self, bundle: &mut Bundle) {
        let text = |path: &Path| path.to_str().expect("the path is ASCII").to_owned();
        bundle.mount("/data", "bind", &text(&self.volume), &["rbind", "rw"]);
        bundle.mount("/data/swap/target", "bind", &text(&self.evil), &["bind"]);
        bundle.mount("/check", "bind", &text(&self.sources.join("target")), &["bind"]);
    }
}

fn cve_2021_30465_exchanged_destination(case: &Case) {
    let exchange = Exchange::new(case);
    let probe = case.directory().join("probe");
    fs::write(&probe, PROBE).expect("write a file");
    fs::set_permissions(&probe, fs::Permissions::from_mode(0o755)).expect("change the mode");
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
    assert!(bad.is_empty(), "a mount followed the symlink: {bad:?}");
}

fn cve_2021_30465_works_on_mounts_by_path(case: &Case) {
    // A runtime that mounts by path follows the symlink: the source of the next mount is then the attacker's directory.
    let exchange = Exchange::new(case);
    let (evil, target) = (exchange.evil.to_str().expect("the path is ASCII"), exchange.sources.join("target"));
    let destination = exchange.volume.join("other/target");
    let script = r#"mount --bind "$0" "$1" && ls "$2""#;
    let (destination, target) =
        (destination.to_str().expect("the path is ASCII"), target.to_str().expect("the path is ASCII"));
    let listing = case.program("unshare", &["--mount", "sh", "-c", script, evil, destination, target]);
    assert_eq!(listing.ok(), "evil\n");
}

fn bind(case: &Case, bundle: &mut Bundle, destination: &str) {
    let source = case.directory().join("given");
    fs::create_dir_all(&source).expect("create a directory");
    fs::write(source.join("given"), "given\n").expect("write a file");
    bundle.mount(destination, "bind", source.to_str().expect("the path is ASCII"), &["bind"]);
}

fn destination_with_dots(case: &Case) {
    let (directory, _) = victim(case);
    let path = directory.to_str().expect("the path is ASCII");
    for destination in [format!("/../../../../../../../..{path}"), format!("/tmp/../../../../../..{path}/made")] {
        let mut bundle = case.script("true");
        bind(case, &mut bundle, &destination);
        case.container(bundle).run();
        assert_victim_unchanged(case);
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
        symlink(&to, bundle.path(link)).expect("create a symlink");
        bind(case, &mut bundle, &format!("{link}{below}"));
        bundle.mount(&format!("{link}{below}/tmpfs"), "tmpfs", "tmpfs", &[]);
        case.container(bundle).run();
        assert_victim_unchanged(case);
    }
}

fn destination_is_a_symlink_to_a_file(case: &Case) {
    let (directory, _) = victim(case);
    let mut bundle = case.script("cat /etc/passwd");
    fs::remove_file(bundle.path("/etc/passwd")).expect("remove a file");
    symlink(directory.join("file"), bundle.path("/etc/passwd")).expect("create a symlink");
    let source = case.file("given", "given\n");
    bundle.mount("/etc/passwd", "bind", &source, &["bind", "rw"]);
    let outcome = case.container(bundle).run();
    assert!(!outcome.stdout.contains("secret of the host"), "{outcome:?}");
    assert_victim_unchanged(case);
}

/// Removes all mounts below `/dev`, so that the `/dev` of the image is used.
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
            .expect("create a symlink");
    }
    case.container(bundle).run();
    assert_victim_unchanged(case);
}

fn dev_is_a_symlink(case: &Case) {
    let (directory, _) = victim(case);
    for mounted in [true, false] {
        let mut bundle = case.script("true");
        fs::remove_dir(bundle.path("/dev")).expect("remove a directory");
        symlink(&directory, bundle.path("/dev")).expect("create a symlink");
        if !mounted {
            without_dev(&mut bundle);
        }
        case.container(bundle).run();
        assert_victim_unchanged(case);
    }
}

fn masked_path_is_a_symlink(case: &Case) {
    let (directory, text) = victim(case);
    let mut bundle = case.script("true");
    symlink(directory.join("file"), bundle.path("/masked")).expect("create a symlink");
    bundle.spec["linux"]["maskedPaths"] = serde_json::json!(["/masked"]);
    bundle.spec["linux"]["readonlyPaths"] = serde_json::json!(["/masked"]);
    case.container(bundle).run();
    assert_eq!(fs::read_to_string(directory.join("file")).expect("the file exists"), text);
    assert_victim_unchanged(case);
}

fn cwd_is_a_symlink(case: &Case) {
    let (directory, _) = victim(case);
    let mut bundle = case.script("cat file made/file 2>/dev/null; touch made-here");
    symlink(&directory, bundle.path("/work")).expect("create a symlink");
    bundle.spec["process"]["cwd"] = serde_json::json!("/work");
    let outcome = case.container(bundle).run();
    assert!(!outcome.stdout.contains("secret of the host"), "{outcome:?}");
    assert_victim_unchanged(case);
}

fn root_entries_are_symlinks(case: &Case) {
    let (directory, _) = victim(case);
    for name in ["sys", "proc", "tmp", "run"] {
        let mut bundle = case.script("true");
        fs::remove_dir(bundle.path(name)).expect("remove a directory");
        symlink(&directory, bundle.path(name)).expect("create a symlink");
        bundle.mount("/run", "tmpfs", "tmpfs", &["tmpcopyup"]);
        case.container(bundle).run();
        assert_victim_unchanged(case);
    }
}
