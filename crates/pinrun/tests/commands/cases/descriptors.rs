//! Descriptors that a container inherits from the caller.

use std::{
    fs::{self, File},
    os::fd::AsFd,
    process::Stdio,
};

use rustix::fd::OwnedFd;

use crate::bundle::{Bundle, ID};

pub(crate) const CASES: &[super::Case] =
    testbed::cases!(nothing_leaks, preserved_descriptors_keep_their_numbers, closed_stdio_is_opened);

/// Lists the descriptors of the process, and the one of the listing itself.
const LIST: &[&str] = &["sh", "-c", "for fd in /proc/self/fd/*; do echo ${fd##*/}; done"];

/// Opens files without close-on-exec, which children of this process inherit.
fn leak(bundle: &Bundle, count: usize) -> Vec<OwnedFd> {
    fs::write(bundle.path("secret"), "secret").expect("write a file");
    let open = || {
        rustix::io::dup(File::open(bundle.path("secret")).expect("open the file").as_fd()).expect("dup the descriptor")
    };
    (0..count).map(|_| open()).collect()
}

fn nothing_leaks() {
    let bundle = Bundle::new(&["ls", "-l", "/proc/self/fd"]);
    let _leaked = leak(&bundle, 40);
    let listed = bundle.pinrun(&["run", ID]).ok();
    assert!(!listed.contains("secret") && !listed.contains(" 10 "), "{listed}");
    bundle.assert_removed();
}

fn preserved_descriptors_keep_their_numbers() {
    let bundle =
        Bundle::new(&["sh", "-c", "cat <&3; test -e /proc/self/fd/4 || echo only; echo $LISTEN_FDS,$LISTEN_PID"]);
    fs::write(bundle.path("given"), "given ").expect("write a file");
    let script = format!(
        "exec env LISTEN_FDS=1 LISTEN_PID=$$ {} --root {} run {ID} 3<given 4<given",
        env!("CARGO_BIN_EXE_pinrun"),
        bundle.root().display()
    );
    let output =
        std::process::Command::new("sh").args(["-c", &script]).current_dir(bundle.path("")).output().expect("run sh");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "given only\n1,1\n", "{output:?}");
    let script = script.replace("env LISTEN_FDS=1 LISTEN_PID=$$", "").replace(" run ", " run --preserve-fds 1 ");
    let output =
        std::process::Command::new("sh").args(["-c", &script]).current_dir(bundle.path("")).output().expect("run sh");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "given only\n,\n", "{output:?}");
    bundle.assert_removed();
}

fn closed_stdio_is_opened() {
    let bundle = Bundle::new(LIST);
    let mut command = std::process::Command::new("sh");
    let script = format!("exec {} --root {} run {ID} <&-", env!("CARGO_BIN_EXE_pinrun"), bundle.root().display());
    let output =
        command.args(["-c", &script]).current_dir(bundle.path("")).stdin(Stdio::null()).output().expect("run sh");
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && listed.starts_with("0\n1\n2\n"), "{output:?}");
    bundle.assert_removed();
}
