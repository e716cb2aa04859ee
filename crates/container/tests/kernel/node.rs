//! The place containers are run from, and one container's run.

use std::{
    cell::Cell,
    fs,
    io::Read,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use cgroup::{GroupPath, Hierarchies};
use container::{Error, Inputs, Nascent, Plan, Progress, Rootfs, Stdio, Target};
use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    fs::{AtFlags, Mode, OFlags},
    mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount},
    process::{WaitId, WaitIdOptions, waitid},
};

/// The test's process, in its own mount namespace.
pub(crate) struct Node {
    pub(crate) trees: Hierarchies,
    pub(crate) parent: GroupPath,
    busybox: Vec<u8>,
    next: Cell<u32>,
    /// The host's directory that holds the one on `/disk`.
    host: OwnedFd,
    disk: String,
}

/// How a container or command ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Exit code, or 128 + signal.
    pub(crate) code: i32,
}

impl Node {
    pub(crate) fn enter() -> Self {
        let trees = Hierarchies::open().expect("cgroup trees");
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].iter().find_map(|path| fs::read(path).ok());
        let busybox = busybox.expect("a static busybox (Debian: busybox-static)");
        let (host, disk) = (std::env::temp_dir(), format!("pinion-test-container-{}", std::process::id()));
        fs::create_dir(host.join(&disk)).expect("a temporary directory");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = rustix::fs::open(&host, flags, Mode::empty()).expect("the temporary directory's parent");
        syscall::mount_namespace::unshare_mounts().expect("a new mount namespace (are you root?)");
        mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("private mounts");
        mount(c"tmpfs", c"/mnt", c"tmpfs", MountFlags::empty(), None).expect("a tmpfs root");
        for (kind, path) in [(c"proc", "/mnt/proc"), (c"sysfs", "/mnt/sys")] {
            fs::create_dir(path).expect("mount point");
            mount(kind, path, kind, MountFlags::empty(), None).expect("proc and sysfs");
        }
        fs::create_dir("/mnt/disk").expect("mount point");
        rustix::mount::mount_bind(host.join(&disk), "/mnt/disk").expect("the host's file system");
        std::env::set_current_dir("/mnt").expect("new root");
        rustix::process::pivot_root(".", ".").expect("pivot_root");
        unmount(".", UnmountFlags::DETACH).expect("old root");
        std::env::set_current_dir("/").expect("new root");
        let parent = GroupPath::parse(&format!("/pinion-test-container-{}", std::process::id())).expect("a path");
        Self { trees, parent, busybox, next: Cell::new(0), host: held, disk }
    }

    /// A directory for file systems whose mounts may have id maps: the root's, which is a tmpfs (Linux 6.3), else the
    /// host's.
    pub(crate) fn mappable(&self) -> &'static str {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
        if (numbers.next(), numbers.next()) >= (Some(6), Some(3)) { "" } else { "/disk" }
    }

    /// Ends and removes what a failed case left; says whether there was anything.
    pub(crate) fn leave(&self) -> bool {
        let left = cgroup::Group::open(&self.trees, &self.parent).ok().filter(|_| self.trees.contains(&self.parent));
        let pids = left.as_ref().is_some_and(|group| group.pids().is_ok_and(|pids| !pids.is_empty()));
        if let Some(group) = left {
            group.kill().expect("kill what was left");
            group.remove().expect("remove what was left");
        }
        for entry in fs::read_dir("/disk").expect("the host's directory").flatten() {
            fs::remove_dir_all(entry.path()).expect("what cases made on the host's file system");
        }
        rustix::fs::unlinkat(&self.host, self.disk.as_str(), AtFlags::REMOVEDIR).expect("the temporary directory");
        pids
    }

    /// A number that no other container has.
    pub(crate) fn number(&self) -> u32 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    /// A directory with busybox and its applets.
    pub(crate) fn image(&self) -> PathBuf {
        let root = PathBuf::from(format!("/image-{}", self.number()));
        for directory in ["bin", "etc", "tmp", "proc", "sys", "dev"] {
            fs::create_dir_all(root.join(directory)).expect("directory of the image");
        }
        fs::write(root.join("bin/busybox"), &self.busybox).expect("busybox");
        set_mode(&root.join("bin/busybox"), 0o755);
        set_mode(&root.join("tmp"), 0o1777);
        let applets = "sh cat ls id mount umount grep stat readlink sleep true false echo test touch hostname head wc ps kill env \
                       pwd sort tr tty stty cut sync od mkdir rm mknod dd chmod ln find uname setsid ip";
        for applet in applets.split_whitespace() {
            symlink("busybox", root.join("bin").join(applet)).expect("applet");
        }
        fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nweb:x:33:33::/www:/bin/sh\n").expect("passwd");
        root
    }

    /// Inputs with a fresh image.
    pub(crate) fn inputs(&self) -> Inputs {
        self.inputs_of(&self.image())
    }

    pub(crate) fn inputs_of(&self, root: &Path) -> Inputs {
        Inputs {
            rootfs: Rootfs::Path(root.to_owned()),
            mounts: Default::default(),
            namespaces: Default::default(),
            stdio: Stdio::default(),
            seccomp: None,
            invocation: Default::default(),
        }
    }

    /// Creates and waits until it is set up.
    pub(crate) fn create(&self, mut spec: oci::Spec, inputs: Inputs) -> Result<(Nascent, Option<OwnedFd>), Error> {
        let linux = spec.linux.get_or_insert_default();
        if linux.cgroups_path.is_none() {
            linux.cgroups_path = Some(self.parent.join(&self.number().to_string()).expect("path").as_str().to_owned());
        }
        let plan = Plan::new(&spec, inputs)?;
        let mut nascent = container::create(&self.trees, plan)?;
        let cloned = nascent.wait_until_cloned();
        match cloned.and_then(|()| next(&mut nascent)) {
            Ok(Progress::Ready { terminal }) => Ok((nascent, terminal)),
            Ok(other) => panic!("not ready: {other:?}"),
            Err(error) => {
                reap(&nascent);
                nascent.group.remove().expect("group of a failed container");
                Err(error)
            }
        }
    }

    /// Creates, starts, collects output, waits, removes.
    pub(crate) fn run(&self, spec: oci::Spec, mut inputs: Inputs) -> Result<Outcome, Error> {
        let output = Output::new(&mut inputs.stdio);
        let (mut nascent, _terminal) = self.create(spec, inputs)?;
        let started = nascent.start().and_then(|()| next(&mut nascent));
        let result = match started {
            Ok(Progress::Executed) => Ok(output.collect(&nascent)),
            Ok(other) => panic!("not executed: {other:?}"),
            Err(error) => {
                reap(&nascent);
                Err(error)
            }
        };
        // A user's container may have none.
        if nascent.group.is_real() {
            nascent.group.kill().expect("kill");
        }
        nascent.group.remove().expect("remove the group");
        result
    }

    /// Runs a shell script in a container of this spec.
    pub(crate) fn shell(&self, script: &str, change: impl FnOnce(&mut oci::Spec)) -> Outcome {
        let mut spec = crate::bundle::spec(&["/bin/sh", "-c", script]);
        change(&mut spec);
        self.run(spec, self.inputs()).expect("the container runs")
    }

    /// A process in a copy of this mount namespace; it ends with the descriptor.
    pub(crate) fn with_mount_namespace(&self) -> (OwnedFd, syscall::clone::Child) {
        let (told, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("pipe");
        let raw = tell.as_raw_fd();
        let namespaces = Some(rustix::thread::UnshareFlags::NEWNS);
        let child = syscall::clone::Clone3 { namespaces, cgroup: None }.fork(|| {
            let _ = syscall::descriptors::close_all_but(&mut [0, 1, 2, told.as_raw_fd()]);
            assert_ne!(raw, told.as_raw_fd());
            let _ = rustix::io::read(&told, &mut [0u8; 1]);
            0
        });
        (tell, child.expect("a process"))
    }

    /// A command in a running container.
    pub(crate) fn exec(&self, target: &Nascent, process: &oci::Process) -> Result<Outcome, Error> {
        self.exec_in(target, target.pidfd.as_fd().into(), process)
    }

    /// The same, with what is said of the container.
    pub(crate) fn exec_in(&self, target: &Nascent, of: Target<'_>, process: &oci::Process) -> Result<Outcome, Error> {
        let mut stdio = Stdio::default();
        let output = Output::new(&mut stdio);
        let group = target.group.exec_group(&format!("exec-{}", self.number())).expect("exec group");
        let mut nascent = container::exec(group, of, process, stdio, None)?;
        let cloned = nascent.wait_until_cloned();
        let result = cloned.and_then(|()| next(&mut nascent)).and_then(|progress| {
            assert!(matches!(progress, Progress::Ready { .. }), "{progress:?}");
            next(&mut nascent)
        });
        let result = match result {
            Ok(_) => Ok(output.collect(&nascent)),
            Err(error) => {
                reap(&nascent);
                Err(error)
            }
        };
        nascent.group.remove().expect("remove the exec group");
        result
    }

    /// Ends a container.
    pub(crate) fn end(&self, nascent: Nascent) {
        nascent.group.kill().expect("kill");
        reap(&nascent);
        nascent.group.remove().expect("remove the group");
    }
}

/// Pipes for output.
pub(crate) struct Output {
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Output {
    pub(crate) fn new(stdio: &mut Stdio) -> Self {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("pipe");
        let ((stdout, out), (stderr, err)) = (pipe(), pipe());
        stdio.stdout = Some(out);
        stdio.stderr = Some(err);
        Self { stdout, stderr }
    }

    pub(crate) fn collect(self, nascent: &Nascent) -> Outcome {
        let read = |fd: OwnedFd| {
            let mut text = Vec::new();
            fs::File::from(fd).read_to_end(&mut text).expect("read output");
            String::from_utf8_lossy(&text).trim_end().to_owned()
        };
        // Small outputs only: both fit into their pipes.
        let (stdout, stderr) = (read(self.stdout), read(self.stderr));
        Outcome { stdout, stderr, code: reap(nascent) }
    }
}

/// Waits for the child's next word.
pub(crate) fn next(nascent: &mut Nascent) -> Result<Progress, Error> {
    loop {
        match nascent.advance()? {
            Progress::Pending => nascent.wait().expect("poll"),
            progress => return Ok(progress),
        }
    }
}

/// Waits for the end: exit code, or 128 + signal.
pub(crate) fn reap(nascent: &Nascent) -> i32 {
    let status =
        waitid(WaitId::PidFd(nascent.pidfd.as_fd()), WaitIdOptions::EXITED).expect("waitid").expect("a status");
    status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0))
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

pub(crate) fn mount_count() -> usize {
    fs::read_to_string("/proc/self/mountinfo").expect("mountinfo").lines().count()
}
