//! The two processes of a virtual machine as containers: their programs, what they see, and what they may use.

use std::path::{Path, PathBuf};

use vm::{
    guest_image::Image,
    qemu::{self, Accelerator},
};

use super::{
    Boot, FILE_SERVER_LOG, HYPERVISOR_LOG, IMAGE,
    template::{self, Origin},
};
use crate::{
    ContainerConfig, DeviceMapping, Error, Propagation, SeccompChoice, Security, UserChoice, VmProcess, Volume,
    container::vm::{FILE_SERVER_SOCKET, SHARED, SOCKETS, from_vmm, monitor_limit},
    node::{KVM, MIGRATION_MODE},
    store::Sandbox,
};

/// Directories of the node in which programs and what they load are.
const PROGRAM_PATHS: [&str; 7] = ["/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/alternatives"];
/// Memory that the virtual machine monitor may use in addition to that of the guest and its page tables, in bytes.
const OWN_MEMORY: u64 = 256 << 20;
/// Memory for instructions of the guest that QEMU has translated, in bytes: its default.
const TRANSLATED_CODE: u64 = 1 << 30;

impl Boot<'_> {
    /// Returns the limits of the virtual machine monitor as it boots (`container::vm::grow` raises them).
    fn limits(&self) -> oci::Resources {
        let own = match self.accelerator {
            Accelerator::Kvm => OWN_MEMORY,
            Accelerator::Tcg => OWN_MEMORY + TRANSLATED_CODE,
        };
        let memory = self.saved.map_or(self.hypervisor.handler.memory, |saved| saved.memory);
        monitor_limit(memory, own)
    }

    pub(super) fn file_server(&self, logs: &Path) -> ContainerConfig {
        let program = &self.hypervisor.handler.file_server;
        let mut config = process(VmProcess::FileServer, self.sandbox, logs);
        config.command = vec![program.to_string_lossy().into_owned()];
        config.command.extend([format!("--socket-path={SOCKETS}/{FILE_SERVER_SOCKET}"), "-o".to_owned()]);
        config.command.push(format!("source={SHARED},sandbox=chroot,cache=auto,announce_submounts,xattr"));
        if self.migrates {
            config.command.extend([MIGRATION_MODE, "--migration-confirm-paths"].map(str::to_owned));
        }
        if self.saved.is_some() {
            // A file that is missing is an error for its user, and not the end of the pod.
            config.command.push("--migration-on-error=guest-error".to_owned());
        }
        config.volumes.extend(program_volumes(program));
        config.security.add_capabilities = vec!["CAP_SYS_CHROOT".to_owned(), "CAP_DAC_READ_SEARCH".to_owned()];
        config.security.user = UserChoice::Uid { uid: 0, gid: Some(0) };
        // It loads a stricter filter of its own, after calls that the default profile does not allow.
        config.security.seccomp = SeccompChoice::Unconfined;
        config
    }

    /// Returns the virtual machine monitor, and how its guest begins.
    pub(super) fn monitor(&self, image: &Image, logs: &Path, user: u32) -> Result<(ContainerConfig, Origin), Error> {
        let handler = &self.hypervisor.handler;
        let name = |path: PathBuf| Path::new(IMAGE).join(path.file_name().unwrap_or_default());
        let bounds = offload::in_place(|| self.hypervisor.bounds());
        let mut configuration = qemu::Configuration {
            program: handler.hypervisor.clone(),
            kernel: name(image.kernel()),
            initramfs: name(image.initramfs()),
            kernel_parameters: Vec::new(),
            memory: bounds.memory,
            memory_max: bounds.memory + bounds.pluggable,
            memory_file: None,
            cpus: bounds.cpus,
            cpus_max: bounds.cpus_max,
            machine: None,
            incoming: false,
            accelerator: self.accelerator,
            sockets: SOCKETS.into(),
            ports: qemu::DEFAULT_PORTS,
            watchdog: false,
        };
        if let Some(saved) = self.saved {
            saved.configure(&mut configuration);
        }
        let origin = self.origin(image, &mut configuration)?;
        let command = qemu::command_line(&configuration).map_err(from_vmm)?;
        let mut config = process(VmProcess::Hypervisor, self.sandbox, logs);
        config.resources = self.limits();
        config.command = template::launch(&origin, image, bounds.memory, command);
        config.volumes.extend(program_volumes(&handler.hypervisor));
        config.volumes.push(read_only_volume(&image.directory, IMAGE));
        config.volumes.extend(origin.template().map(|from| read_only_volume(&from.directory, template::DIRECTORY)));
        config.security.user = UserChoice::Uid { uid: user.into(), gid: Some(user.into()) };
        config.security.drop_capabilities = vec!["ALL".to_owned()];
        if self.accelerator == Accelerator::Kvm {
            let (container_path, host_path) = (KVM.to_owned(), KVM.into());
            config.devices.push(DeviceMapping { container_path, host_path, permissions: "rw".to_owned() });
        }
        Ok((config, origin))
    }
}

/// Returns the configuration of a process of the virtual machine, without its program.
fn process(process: VmProcess, sandbox: &Sandbox, logs: &Path) -> ContainerConfig {
    let minimal = ContainerConfig::minimal(String::new());
    let (attempt, log) = match process {
        VmProcess::Hypervisor => (0, HYPERVISOR_LOG),
        VmProcess::FileServer => (1, FILE_SERVER_LOG),
    };
    ContainerConfig {
        attempt,
        vm_process: Some(process),
        log_path: Some(logs.join(log)),
        security: Security {
            no_new_privileges: true,
            user_namespace: sandbox.config().user_namespace.clone(),
            ..minimal.security
        },
        ..minimal
    }
}

/// Returns the volumes with a program and what it loads.
fn program_volumes(program: &Path) -> Vec<Volume> {
    let mut paths: Vec<PathBuf> = PROGRAM_PATHS.into_iter().map(PathBuf::from).filter(|path| path.exists()).collect();
    if !paths.iter().any(|path| program.starts_with(path)) {
        paths.push(program.to_owned());
    }
    paths.iter().map(|path| read_only_volume(path, &path.to_string_lossy())).collect()
}

fn read_only_volume(host_path: &Path, container_path: &str) -> Volume {
    Volume {
        container_path: container_path.to_owned(),
        host_path: host_path.to_owned(),
        image: None,
        options: Vec::new(),
        uid_mappings: Vec::new(),
        gid_mappings: Vec::new(),
        readonly: true,
        recursive_readonly: false,
        propagation: Propagation::Private,
        selinux_relabel: false,
    }
}
