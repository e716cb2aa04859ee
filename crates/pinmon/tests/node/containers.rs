//! Containers and execs of a node.

use std::os::fd::OwnedFd;

use monitor_api::{
    Attachments, Create, Created, Exec, ExecStarted, Failure, Kill, KillScope, LogOptions, Reply, Request, Role, Target,
};

use super::Node;

/// A container with the descriptors that the daemon has of it.
pub struct TestContainer {
    pub id: String,
    pub created: Created,
    pub pidfd: OwnedFd,
    pub sync: Option<OwnedFd>,
    pub terminal: Option<OwnedFd>,
    /// Read ends of its output. While they are open, the content of the FIFOs outlives monitor and container.
    pub reading: Attachments,
}

impl TestContainer {
    pub fn has_ended(&self) -> bool {
        let mut fds = [rustix::event::PollFd::new(&self.pidfd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).expect("poll") > 0
    }
}

impl Node {
    pub fn spec(&self, id: &str, args: &[&str]) -> oci::Spec {
        let mut spec: oci::Spec =
            serde_json::from_value(testbed::spec(args, &format!("{}/{id}", self.cgroup))).expect("a spec");
        spec.root.as_mut().expect("a root").path = "/".into();
        let kill = || vec!["CAP_KILL".to_owned()];
        let process = spec.process.as_mut().expect("a process");
        process.capabilities =
            Some(oci::Capabilities { bounding: kill(), effective: kill(), permitted: kill(), ..Default::default() });
        process.no_new_privileges = true;
        let cgroup = oci::Namespace { kind: oci::NamespaceType::Cgroup, path: None };
        spec.linux.as_mut().expect("linux").namespaces.push(cgroup);
        spec
    }

    pub fn create_with(
        &mut self,
        id: &str,
        spec: oci::Spec,
        attachments: Attachments,
    ) -> Result<TestContainer, Failure> {
        self.create_logged(id, spec, LogOptions::default(), attachments)
    }

    pub fn create_logged(
        &mut self,
        id: &str,
        spec: oci::Spec,
        log: LogOptions,
        attachments: Attachments,
    ) -> Result<TestContainer, Failure> {
        let mut reading = Attachments::new();
        for (role, fd) in attachments.iter().filter(|(role, _)| matches!(role, Role::StdoutRead | Role::StderrRead)) {
            reading.push(*role, fd.try_clone().expect("dup"));
        }
        let attachments = attachments.with(Role::Rootfs, self.rootfs());
        let create = Create {
            container: id.into(),
            sandbox: "pod".into(),
            spec,
            log,
            bundle: String::new(),
            mounts: None,
            runtime: None,
            external: false,
            interpreter: None,
        };
        let (reply, mut files) = self.request(Request::Create(Box::new(create)), attachments)?;
        let Reply::Created(created) = reply else { panic!("unexpected: {reply:?}") };
        Ok(TestContainer {
            id: id.into(),
            created,
            pidfd: files.take(Role::Pidfd).expect("a pidfd"),
            sync: files.take(Role::Sync),
            terminal: files.take(Role::Terminal),
            reading,
        })
    }

    /// Sends a `Create` that announces this number of mounts, and returns its failure.
    pub fn refused_with_mounts(&mut self, id: &str, spec: oci::Spec, mounts: Option<usize>) -> Failure {
        let create = Create {
            container: id.into(),
            sandbox: "pod".into(),
            spec,
            log: LogOptions::default(),
            bundle: String::new(),
            mounts,
            runtime: None,
            external: false,
            interpreter: None,
        };
        let attachments = self.output(id).with(Role::Rootfs, self.rootfs());
        self.request(Request::Create(Box::new(create)), attachments).map(|(reply, _)| reply).expect_err("refused")
    }

    pub fn create(&mut self, id: &str, args: &[&str]) -> TestContainer {
        let (spec, output) = (self.spec(id, args), self.output(id));
        self.create_with(id, spec, output).expect("create")
    }

    pub fn start_container(&mut self, id: &str) -> Result<(), Failure> {
        self.request(Request::Start { container: id.into(), has_started: false }, Attachments::new()).map(drop)
    }

    pub fn run(&mut self, id: &str, args: &[&str]) -> TestContainer {
        let container = self.create(id, args);
        self.start_container(id).expect("start");
        container
    }

    pub fn shell(&mut self, id: &str, script: &str) -> TestContainer {
        self.run(id, &["sh", "-c", script])
    }

    pub fn kill(&mut self, target: Target, signal: i32, scope: KillScope) -> Result<(), Failure> {
        self.request(Request::Kill(Kill { target, signal, scope }), Attachments::new()).map(drop)
    }

    pub fn delete(&mut self, id: &str) {
        self.request(Request::Delete { container: id.into() }, Attachments::new()).expect("delete");
    }

    pub fn exec(&mut self, id: &str, exec: &str, args: &[&str]) -> Result<(ExecStarted, Attachments), Failure> {
        let process = self.spec(id, args).process.expect("a process");
        self.exec_with(id, exec, process, Attachments::new())
    }

    pub fn exec_with(
        &mut self,
        id: &str,
        exec: &str,
        process: oci::Process,
        attachments: Attachments,
    ) -> Result<(ExecStarted, Attachments), Failure> {
        let request = Exec { exec: exec.into(), container: id.into(), process };
        let (reply, files) = self.request(Request::Exec(Box::new(request)), attachments)?;
        let Reply::ExecStarted(started) = reply else { panic!("unexpected: {reply:?}") };
        Ok((started, files))
    }
}
