//! Basic properties of a container are those of its spec.

use rustix::fd::AsFd;

use crate::{Case, bundle, node::Node};

pub(crate) const CASES: &[Case] = testbed::cases![
    runs,
    exit_codes,
    only_stdio_descriptors,
    devices_and_symlinks,
    limits_hold,
    spec_devices,
    dev_null_for_absent_stdio,
    signals_are_reset,
    the_parent_keeps_no_descriptor,
];

fn runs(node: &Node) {
    let out = node.shell("echo out; echo err >&2; hostname; echo $HOME", |_| ());
    assert_eq!((out.stdout.as_str(), out.stderr.as_str(), out.code), ("out\ninside\n/root", "err", 0));
}

fn exit_codes(node: &Node) {
    assert_eq!(node.shell("exit 42", |_| ()).code, 42);
    assert_eq!(node.shell("kill -TERM $$; exit 3", |_| ()).code, 3, "init ignores signals it has no handler for");
    let out = node.run(bundle::spec(&["true"]), node.inputs()).expect("true runs");
    assert_eq!(out.code, 0);
}

/// The process has only descriptors 0, 1 and 2, whatever the parent holds (here a directory of the host, not
/// close-on-exec).
fn only_stdio_descriptors(node: &Node) {
    let directory = std::fs::File::open("/proc").expect("a directory");
    rustix::io::fcntl_setfd(&directory, rustix::io::FdFlags::empty()).expect("clear close-on-exec");
    let leaked = directory.as_fd();
    // `ls` itself opens the directory as 3.
    let out = node.run(bundle::spec(&["/bin/ls", "/proc/self/fd"]), node.inputs()).expect("runs");
    assert_eq!(out.stdout, "0\n1\n2\n3", "{leaked:?} leaked");
    let out = node.shell("set -- /proc/$$/fd/*; echo $#", |_| ());
    assert!(out.stdout.trim().parse::<u32>().expect("a count") <= 4, "{out:?}");
}

fn devices_and_symlinks(node: &Node) {
    let out = node.shell(
        "cd /dev; stat -c '%n %F %t:%T %a' null zero full random urandom tty; for l in fd stdin stdout stderr ptmx; do readlink $l; done; ls",
        |_| (),
    );
    let expected = "null character special file 1:3 666\nzero character special file 1:5 666\n\
                    full character special file 1:7 666\nrandom character special file 1:8 666\n\
                    urandom character special file 1:9 666\ntty character special file 5:0 666\n\
                    /proc/self/fd\n/proc/self/fd/0\n/proc/self/fd/1\n/proc/self/fd/2\npts/ptmx\n\
                    fd\nfull\nmqueue\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero";
    assert_eq!(out.stdout, expected, "{}", out.stderr);
    assert_eq!(node.shell("echo hidden > /dev/null; head -c 3 /dev/zero | od -An -tx1", |_| ()).stdout, " 00 00 00");
}

fn limits_hold(node: &Node) {
    let script = "ulimit -n; cat /proc/self/oom_score_adj; cat /sys/fs/cgroup/memory/memory.limit_in_bytes \
                  /sys/fs/cgroup/memory.max 2>/dev/null; umask; cut -d: -f3 /proc/self/cgroup | sort -u";
    let out = node.shell(script, |_| ());
    assert_eq!(out.stdout, format!("1024\n100\n{}\n0022\n/", 64 << 20), "{}", out.stderr);
}

fn spec_devices(node: &Node) {
    let out = node.shell("stat -c '%n %F %t:%T %a %u:%g' /dev/fuse /dev/net/tun /dev/pipe", |spec| {
        spec.linux.as_mut().expect("linux").devices = serde_json::from_value(serde_json::json!([
            {"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229, "fileMode": 0o600, "uid": 5, "gid": 6},
            {"path": "/dev/net/tun", "type": "c", "major": 10, "minor": 200},
            {"path": "/dev/pipe", "type": "p", "fileMode": 0o640},
        ]))
        .expect("devices");
    });
    let expected = "/dev/fuse character special file a:e5 600 5:6\n/dev/net/tun character special file a:c8 666 0:0\n\
                    /dev/pipe fifo 0:0 640 0:0";
    assert_eq!(out.stdout, expected, "{}", out.stderr);
}

fn dev_null_for_absent_stdio(node: &Node) {
    let out = node.shell("readlink /proc/self/fd/0; cat; echo end", |_| ());
    assert_eq!(out.stdout, "/dev/null\nend");
}

/// Rust's runtime ignores SIGPIPE, and a monitor blocks signals that it reads from a signalfd; the process inherits
/// neither.
fn signals_are_reset(node: &Node) {
    let blocked = syscall::signal_fd::SignalFd::block(&[10, 17]).expect("blocked");
    let out = node.run(bundle::spec(&["/bin/grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]), node.inputs());
    assert_eq!(out.expect("runs").stdout, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000");
    drop(blocked);
}

fn the_parent_keeps_no_descriptor(node: &Node) {
    let count = || std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
    // The first run opens descriptors that stay open for the lifetime of the process.
    node.shell("true", |_| ());
    let before = count();
    for _ in 0..5 {
        node.shell("true", |_| ());
        node.run(bundle::spec(&["nginxx"]), node.inputs()).expect_err("not there");
    }
    assert_eq!(count(), before);
}
