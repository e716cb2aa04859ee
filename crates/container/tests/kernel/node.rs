//! The environment that containers are run from, and functions that run one container.

use std::{
    cell::Cell,
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use cgroup::{GroupPath, Hierarchies};
use container::{ContainerSetup, Error, Inputs, Plan, Progress, Rootfs, Stdio, Target};
use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    fs::{AtFlags, Mode, OFlags},
    mount::{MountFlags, UnmountFlags, mount, unmount},
    process::{WaitId, WaitIdOptions, waitid},
};

/// The test process, in its own mount namespace.
pub(crate) struct Node {
    pub(crate) trees: Hierarchies,
    pub(crate) parent: GroupPath,
    busybox: Vec<u8>,
    next: Cell<u32>,
    /// The host's directory that contains the directory mounted on `/disk`.
    host: OwnedFd,
    /// The name of that directory.
    disk: String,
}

/// The result of a container or an exec'd process.
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
        let busybox = testbed::busybox();
        let (host, disk) = (std::env::temp_dir(), format!("pinion-test-container-{}", std::process::id()));
        fs::create_dir(host.join(&disk)).expect("a temporary directory");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent_directory = rustix::fs::open(&host, flags, Mode::empty()).expect("the temporary directory's parent");
        testbed::own_mounts();
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
        let parent = GroupPath::parse(&format!("/{disk}")).expect("a path");
        Self { trees, parent, busybox, next: Cell::new(0), host: parent_directory, disk }
    }

    /// Returns a path prefix on a file system that can be id-mapped: the root, which is a tmpfs (Linux 6.3), otherwise
    /// the host's file system.
    pub(crate) fn mappable(&self) -> &'static str {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
        if (numbers.next(), numbers.next()) >= (Some(6), Some(3)) { "" } else { "/disk" }
    }

    /// Kills and removes everything that a failed case left over; returns whether processes were left.
    pub(crate) fn clean_up(&self) -> bool {
        let leftover =
            cgroup::Group::open(&self.trees, &self.parent).ok().filter(|_| self.trees.contains(&self.parent));
        let has_pids = leftover.as_ref().is_some_and(|group| group.pids().is_ok_and(|pids| !pids.is_empty()));
        if let Some(group) = leftover {
            group.kill().expect("kill leftover processes");
            group.remove().expect("remove leftover cgroups");
        }
        for entry in fs::read_dir("/disk").expect("the host's directory").flatten() {
            fs::remove_dir_all(entry.path()).expect("remove files that cases made on the host's file system");
        }
        rustix::fs::unlinkat(&self.host, self.disk.as_str(), AtFlags::REMOVEDIR).expect("the temporary directory");
        has_pids
    }

    /// Returns a number that no other container has.
    pub(crate) fn number(&self) -> u32 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    /// Makes a root directory with busybox and its applets.
    pub(crate) fn image(&self) -> PathBuf {
        let root = PathBuf::from(format!("/image-{}", self.number()));
        testbed::make_root(&root, &self.busybox);
        fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nweb:x:33:33::/www:/bin/sh\n").expect("passwd");
        root
    }

    /// Returns inputs with a new image.
    pub(crate) fn inputs(&self) -> Inputs {
        self.inputs_of(&self.image())
    }

    pub(crate) fn inputs_of(&self, root: &Path) -> Inputs {
        Inputs {
            interpreter: None,
            rootfs: Rootfs::Path(root.to_owned()),
            mounts: Default::default(),
            namespaces: Default::default(),
            stdio: Stdio::default(),
            seccomp: None,
            invocation: Default::default(),
        }
    }

    /// Creates a container and waits until it is set up.
    pub(crate) fn create(
        &self,
        mut spec: oci::Spec,
        inputs: Inputs,
    ) -> Result<(ContainerSetup, Option<OwnedFd>), Error> {
        let linux = spec.linux.get_or_insert_default();
        if linux.cgroups_path.is_none() {
            linux.cgroups_path = Some(self.parent.join(&self.number().to_string()).expect("path").as_str().to_owned());
        }
        let plan = Plan::new(&spec, inputs)?;
        let mut setup = container::create(&self.trees, plan)?;
        let cloned = setup.wait_until_cloned();
        match cloned.and_then(|()| next(&mut setup)) {
            Ok(Progress::Ready { terminal }) => Ok((setup, terminal)),
            Ok(other) => panic!("not ready: {other:?}"),
            Err(error) => {
                reap(&setup);
                setup.group.remove().expect("group of a failed container");
                Err(error)
            }
        }
    }

    /// Creates and starts a container, collects its output, reaps it and removes its group.
    pub(crate) fn run(&self, spec: oci::Spec, mut inputs: Inputs) -> Result<Outcome, Error> {
        let output = Output::new(&mut inputs.stdio);
        let (mut setup, _terminal) = self.create(spec, inputs)?;
        let started = setup.start().and_then(|()| next(&mut setup));
        let result = match started {
            Ok(Progress::Executed) => Ok(output.collect(&setup)),
            Ok(other) => panic!("not executed: {other:?}"),
            Err(error) => {
                reap(&setup);
                Err(error)
            }
        };
        // A container of an unprivileged user may not have a group of its own.
        if setup.group.has_directory() {
            setup.group.kill().expect("kill");
        }
        setup.group.remove().expect("remove the group");
        result
    }

    /// Runs a shell script in a container of this spec.
    pub(crate) fn shell(&self, script: &str, change: impl FnOnce(&mut oci::Spec)) -> Outcome {
        let mut spec = crate::bundle::spec(&["/bin/sh", "-c", script]);
        change(&mut spec);
        self.run(spec, self.inputs()).expect("the container runs")
    }

    /// Starts a process in a copy of this mount namespace. It ends when the returned descriptor is closed.
    pub(crate) fn with_mount_namespace(&self) -> (OwnedFd, syscall::clone::Child) {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("pipe");
        let raw = write.as_raw_fd();
        let namespaces = Some(rustix::thread::UnshareFlags::NEWNS);
        let child = syscall::clone::Clone3 { namespaces, cgroup: None }.fork(|| {
            let _ = syscall::descriptors::close_all_except(&mut [0, 1, 2, read.as_raw_fd()]);
            assert_ne!(raw, read.as_raw_fd());
            let _ = rustix::io::read(&read, &mut [0u8; 1]);
            0
        });
        (write, child.expect("a process"))
    }

    /// Executes a process in a running container.
    pub(crate) fn exec(&self, target: &ContainerSetup, process: &oci::Process) -> Result<Outcome, Error> {
        self.exec_in(target, target.pidfd.as_fd().into(), process)
    }

    /// Executes a process in a running container with the given target.
    pub(crate) fn exec_in(
        &self,
        target: &ContainerSetup,
        exec_target: Target<'_>,
        process: &oci::Process,
    ) -> Result<Outcome, Error> {
        let mut stdio = Stdio::default();
        let output = Output::new(&mut stdio);
        let group = target.group.exec_group(&format!("exec-{}", self.number())).expect("exec group");
        let mut setup = container::exec(group, exec_target, process, stdio, None)?;
        let cloned = setup.wait_until_cloned();
        let result = cloned.and_then(|()| next(&mut setup)).and_then(|progress| {
            assert!(matches!(progress, Progress::Ready { .. }), "{progress:?}");
            next(&mut setup)
        });
        let result = match result {
            Ok(_) => Ok(output.collect(&setup)),
            Err(error) => {
                reap(&setup);
                Err(error)
            }
        };
        setup.group.remove().expect("remove the exec group");
        result
    }

    /// Kills a container, reaps it and removes its group.
    pub(crate) fn end(&self, setup: ContainerSetup) {
        setup.group.kill().expect("kill");
        reap(&setup);
        setup.group.remove().expect("remove the group");
    }
}

/// The read ends of pipes for stdout and stderr.
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

    pub(crate) fn collect(self, setup: &ContainerSetup) -> Outcome {
        let read = |fd: OwnedFd| {
            let mut text = Vec::new();
            fs::File::from(fd).read_to_end(&mut text).expect("read output");
            String::from_utf8_lossy(&text).trim_end().to_owned()
        };
        // Small outputs only: both fit into their pipes.
        let (stdout, stderr) = (read(self.stdout), read(self.stderr));
        Outcome { stdout, stderr, code: reap(setup) }
    }
}

/// Waits until the child reports progress.
pub(crate) fn next(setup: &mut ContainerSetup) -> Result<Progress, Error> {
    loop {
        match setup.advance()? {
            Progress::Pending => setup.wait().expect("poll"),
            progress => return Ok(progress),
        }
    }
}

/// Reaps the child; returns its exit code, or 128 + signal.
pub(crate) fn reap(setup: &ContainerSetup) -> i32 {
    let status = waitid(WaitId::PidFd(setup.pidfd.as_fd()), WaitIdOptions::EXITED).expect("waitid").expect("a status");
    status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0))
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

pub(crate) fn mount_count() -> usize {
    fs::read_to_string("/proc/self/mountinfo").expect("mountinfo").lines().count()
}
