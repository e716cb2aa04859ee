//! What a container gets of its caller's descriptors.

use std::{
    fs::{self, File},
    os::fd::AsFd,
    process::Stdio,
};

use rustix::fd::OwnedFd;

use crate::bundle::{Bundle, ID};

pub(crate) const CASES: &[super::Case] = crate::cases!(nothing_leaks, the_preserved_keep_their_numbers, closed_ones);

/// Lists its own descriptors; one more is the listing's.
const LIST: &[&str] = &["sh", "-c", "for fd in /proc/self/fd/*; do echo ${fd##*/}; done"];

/// Files that this process's children inherit, from descriptor 3 or so on.
fn leak(bundle: &Bundle, count: usize) -> Vec<OwnedFd> {
    fs::write(bundle.path("secret"), "secret").expect("a file");
    let open = || rustix::io::dup(File::open(bundle.path("secret")).expect("open").as_fd()).expect("dup");
    (0..count).map(|_| open()).collect()
}

fn nothing_leaks() {
    let bundle = Bundle::new(&["ls", "-l", "/proc/self/fd"]);
    let _leaked = leak(&bundle, 40);
    let listed = bundle.pinrun(&["run", ID]).ok();
    assert!(!listed.contains("secret") && !listed.contains(" 10 "), "{listed}");
    bundle.is_gone();
}

fn the_preserved_keep_their_numbers() {
    let bundle =
        Bundle::new(&["sh", "-c", "cat <&3; test -e /proc/self/fd/4 || echo only; echo $LISTEN_FDS,$LISTEN_PID"]);
    fs::write(bundle.path("given"), "given ").expect("a file");
    let script = format!(
        "exec env LISTEN_FDS=1 LISTEN_PID=$$ {} --root {} run {ID} 3<given 4<given",
        env!("CARGO_BIN_EXE_pinrun"),
        bundle.root().display()
    );
    let output =
        std::process::Command::new("sh").args(["-c", &script]).current_dir(bundle.path("")).output().expect("sh");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "given only\n1,1\n", "{output:?}");
    let script = script.replace("env LISTEN_FDS=1 LISTEN_PID=$$", "").replace(" run ", " run --preserve-fds 1 ");
    let output =
        std::process::Command::new("sh").args(["-c", &script]).current_dir(bundle.path("")).output().expect("sh");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "given only\n,\n", "{output:?}");
    bundle.is_gone();
}

fn closed_ones() {
    let bundle = Bundle::new(LIST);
    let mut command = std::process::Command::new("sh");
    let script = format!("exec {} --root {} run {ID} <&-", env!("CARGO_BIN_EXE_pinrun"), bundle.root().display());
    let output = command.args(["-c", &script]).current_dir(bundle.path("")).stdin(Stdio::null()).output().expect("sh");
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && listed.starts_with("0\n1\n2\n"), "{output:?}");
    bundle.is_gone();
}
