//! Executes a process in a container.

use agent_api::{Exec, ProcessId};
use container::{ExecFilter, Target};
use rustix::fd::AsFd;

use crate::{
    agent::Agent,
    connection::Caller,
    create::OpenPorts,
    failure::{of_container, state, system, unknown},
    process::{Lifeline, Outcome, Process, Stage},
};

impl Agent {
    /// Executes a process in a running container. Its caller is answered when execve(2) has succeeded.
    pub(crate) fn exec(&mut self, caller: Caller, request: Exec, ports: OpenPorts) -> Outcome<()> {
        let Exec { container, id, process, streams: port_names } = request;
        let (container_id, exec_id) = (ProcessId::container(&container), ProcessId::exec(&container, &id));
        self.check_new(&exec_id)?;
        let container = self.processes.get(&container_id).ok_or_else(|| unknown("execute in", &container_id))?;
        if container.stage != Stage::Running {
            return Err(state("execute in", &container_id, "it is not running"));
        }
        let failed = |error: container::Error| of_container("execute", &exec_id, &error);
        let group = container.group().exec_group(&id).map_err(|error| system("create the cgroup of an exec", error))?;
        let (stdio, streams) = ports.connect(process.terminal)?;
        let template = &container.template;
        let target = Target {
            init: container.setup.pidfd.as_fd(),
            user_namespace: template.user_namespace,
            callers_mount_namespace: false,
            personality: template.personality.as_ref(),
            memory_policy: template.memory_policy.as_ref(),
            keep_groups: false,
        };
        let filter = template.filter.as_ref().map(ExecFilter::from);
        let mut setup = container::exec(group, target, &process, stdio, filter).map_err(failed)?;
        let cloned = setup.wait_until_cloned();
        let ports = [port_names.stdin, port_names.stdout, port_names.stderr].into_iter().flatten().collect();
        let mut process = Process::new(exec_id.clone(), setup, streams, caller);
        process.lifeline = Some(Lifeline { connection: caller.connection, ports });
        self.processes.insert(exec_id.clone(), process);
        if let Err(error) = cloned {
            self.fail(&exec_id, failed(error));
        }
        Ok(())
    }
}
