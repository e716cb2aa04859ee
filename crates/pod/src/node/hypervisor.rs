//! What runs virtual machines on this node.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        self, Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::Mutex;
use vm::{
    guest_image,
    qemu::{Accelerator, CPUS_MAX},
    template::Templates,
};

use super::{
    file_server::Migrations,
    guest_size::{BLOCK, Bounds, count_cpus},
};
use crate::{Error, VmHandler, error::failed, store::ContainerVm};

/// File in the state directory whose existence records that guests do not boot with KVM, until the node is booted again or the
/// file is removed.
const KVM_UNUSABLE: &str = "kvm-unusable";
/// Directory below the data directory with the templates of guests, one directory for each handler.
const TEMPLATES: &str = "vm-templates";
/// How long no template is made after one could not be written.
const POSTPONED: Duration = Duration::from_secs(600);
/// Memory of QEMU and virtiofsd themselves, in bytes: 60 to 90 MiB with an idle guest.
const PROCESSES_OVERHEAD: u64 = 128 << 20;
/// Memory of translated code and more of an emulator, in bytes.
const EMULATION_OVERHEAD: u64 = 256 << 20;
/// Processor time of QEMU and virtiofsd, in thousandths of a processor: that of Kata Containers' RuntimeClass.
const CPU_OVERHEAD: u32 = 250;
/// The device of the kernel's hypervisor.
pub(crate) const KVM: &str = "/dev/kvm";

/// Least memory for each processor that a guest may get, in bytes: its kernel reserves 280 KiB of the memory that it boots with
/// for each of them (measured with Linux 6.1).
const MEMORY_PER_CPU: u64 = 4 << 20;

/// Most memory that a guest can have by default, in bytes: the address space of every processor, and of those that are emulated,
/// has room for it.
const MEMORY_MAX: u64 = 512 << 30;

/// A handler whose pods are virtual machines.
pub(crate) struct Hypervisor {
    pub(crate) handler: VmHandler,
    image: PathBuf,
    kvm_unusable: PathBuf,
    kvm_works: AtomicBool,
    pub(crate) templates: Templates,
    /// Held by the pod that makes a template.
    pub(crate) making: Arc<Mutex<()>>,
    /// Whether guests do not continue from a template.
    templates_fail: AtomicBool,
    /// Until when no template is made or used.
    postponed: sync::Mutex<Option<Instant>>,
    migrations: Migrations,
}

/// What a pod takes of the node in addition to the limits of its containers: `overhead.podFixed` of a RuntimeClass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodOverhead {
    /// Memory in bytes.
    pub memory: u64,
    /// Processor time in thousandths of a processor.
    pub cpu_millis: u32,
}

impl Hypervisor {
    pub(crate) fn new(handler: VmHandler, state_dir: &Path, data_dir: &Path) -> Self {
        let image = handler.image.clone().unwrap_or_else(|| data_dir.join("vm"));
        let templates = Templates::new(data_dir.join(TEMPLATES).join(&handler.name));
        if !handler.template
            && let Err(error) = templates.remove()
        {
            tracing::warn!("{error}");
        }
        Self {
            handler,
            image,
            kvm_unusable: state_dir.join(KVM_UNUSABLE),
            kvm_works: AtomicBool::new(false),
            migrations: Migrations::default(),
            templates,
            making: Arc::default(),
            templates_fail: AtomicBool::new(false),
            postponed: sync::Mutex::default(),
        }
    }

    /// Whether guests begin from templates.
    pub(crate) fn uses_templates(&self) -> bool {
        let postponed = *self.postponed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_postponed = postponed.is_some_and(|until| Instant::now() < until);
        self.handler.template && !self.templates_fail.load(Ordering::Relaxed) && !is_postponed
    }

    /// Notes that a template could not be written: the disk may be full.
    pub(crate) fn postpone_templates(&self) {
        *self.postponed.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now().checked_add(POSTPONED);
    }

    /// Notes that a guest did not continue from a template: later ones boot, until the daemon is restarted.
    pub(crate) fn give_up_templates(&self) {
        self.templates_fail.store(true, Ordering::Relaxed);
    }

    /// Checks that what it needs is on the node. Returns how guests are run. Blocks.
    ///
    /// # Errors
    /// `FailedPrecondition` with the remedy.
    pub(crate) fn check(&self) -> Result<Accelerator, Error> {
        let name = &self.handler.name;
        let programs = [("hypervisor", &self.handler.hypervisor), ("file_server", &self.handler.file_server)];
        for (key, path) in programs {
            let is_program =
                std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
            if !is_program {
                return Err(Error::state(format!(
                    "{} is not a program; install QEMU and virtiofsd, or set handlers.{name}.{key}",
                    path.display()
                )));
            }
        }
        self.image()?;
        self.accelerator()
    }

    /// Returns the image that guests boot. Blocks.
    pub(crate) fn image(&self) -> Result<guest_image::Image, Error> {
        guest_image::open(&self.image)
            .map_err(|error| Error::state(format!("{error}; make the image: pinion vm image")))
    }

    /// Returns how guests are run. Blocks.
    pub(crate) fn accelerator(&self) -> Result<Accelerator, Error> {
        let has_kvm = Path::new(KVM).exists() && !self.kvm_unusable.exists();
        match (has_kvm, self.handler.allow_emulation) {
            (true, _) => Ok(Accelerator::Kvm),
            (false, true) => Ok(Accelerator::Tcg),
            (false, false) => Err(Error::state(format!(
                "{KVM} does not exist or cannot run guests; use a node with virtualization, or allow emulation in software, \
                 which is slow: handlers.{}.allow_emulation = true",
                self.handler.name
            ))),
        }
    }

    /// Notes that a guest has booted with KVM: a later failure is not that of KVM.
    pub(crate) fn note_kvm_works(&self) {
        self.kvm_works.store(true, Ordering::Relaxed);
    }

    /// Whether a guest of this handler has booted with KVM since the daemon was started.
    pub(crate) fn kvm_works(&self) -> bool {
        self.kvm_works.load(Ordering::Relaxed)
    }

    /// Records that guests do not boot with KVM, and why, and reports whether they may be emulated. Later daemons do not try it
    /// again. Blocks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn give_up_kvm(&self, reason: &str) -> Result<bool, Error> {
        if self.kvm_works() {
            return Ok(false);
        }
        if self.handler.allow_emulation {
            let written = fs::write(&self.kvm_unusable, format!("{reason}\n"));
            written.map_err(failed(format_args!("create {}", self.kvm_unusable.display())))?;
        }
        Ok(self.handler.allow_emulation)
    }

    /// Whether the file server can hand its state over to another one, so that pods can be saved.
    pub(crate) async fn file_server_migrates(&self) -> bool {
        self.migrations.supports(&self.handler.file_server).await
    }

    /// Returns what guests boot with, and what they can have. Blocks.
    pub(crate) fn bounds(&self) -> Bounds {
        let VmHandler { memory, memory_max, cpus, cpus_max, .. } = self.handler;
        let memory_max = memory_max.unwrap_or_else(|| node_memory().min(MEMORY_MAX));
        let cpus_max = cpus_max.unwrap_or_else(|| {
            let affordable = u32::try_from(memory / MEMORY_PER_CPU).unwrap_or(u32::MAX);
            node_cpus().min(affordable).min(CPUS_MAX)
        });
        let pluggable = memory_max.saturating_sub(memory) / BLOCK * BLOCK;
        Bounds { memory, pluggable, cpus, cpus_max: cpus_max.max(cpus) }
    }

    /// Returns what a pod takes of the node in addition to the limits of its containers. Blocks.
    pub(crate) fn overhead(&self) -> PodOverhead {
        let emulation = match self.accelerator() {
            Ok(Accelerator::Tcg) => EMULATION_OVERHEAD,
            Ok(Accelerator::Kvm) | Err(_) => 0,
        };
        let memory = self.handler.memory.saturating_add(PROCESSES_OVERHEAD + emulation);
        PodOverhead { memory, cpu_millis: CPU_OVERHEAD }
    }

    /// Returns what is on record about a container in a virtual machine.
    pub(crate) fn container_vm(&self) -> ContainerVm {
        let timeout = u32::try_from(self.handler.timeout.as_secs()).unwrap_or(u32::MAX);
        ContainerVm { handler: self.handler.name.clone(), timeout, guest_id: None }
    }
}

/// Returns the memory of the node in bytes.
fn node_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

/// Returns the number of processors of the node that are online. This process may use fewer.
fn node_cpus() -> u32 {
    std::fs::read_to_string("/sys/devices/system/cpu/online").map_or(1, |list| count_cpus(&list))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn hypervisor(state: &Path, change: impl FnOnce(&mut VmHandler)) -> Hypervisor {
        let mut handler = VmHandler {
            name: "vm".to_owned(),
            hypervisor: PathBuf::new(),
            file_server: PathBuf::new(),
            image: None,
            memory: 256 * MIB,
            memory_max: None,
            cpus: 1,
            cpus_max: None,
            allow_emulation: true,
            template: false,
            boot_timeout: Duration::ZERO,
            timeout: Duration::ZERO,
            silence_timeout: Duration::ZERO,
        };
        change(&mut handler);
        Hypervisor::new(handler, state, state)
    }

    fn bounds(change: impl FnOnce(&mut VmHandler)) -> Bounds {
        hypervisor(Path::new("/data"), change).bounds()
    }

    #[test]
    fn guests_can_have_what_the_node_has_or_the_handler_allows() {
        let default = bounds(|_| {});
        let total = default.memory + default.pluggable;
        assert!(
            total <= node_memory() && total + BLOCK > node_memory() && default.pluggable % BLOCK == 0,
            "{default:?}"
        );
        assert_eq!(default.cpus_max, node_cpus().min(64), "64 take 18 MiB of 256");
        let bounds = |memory_max, cpus, cpus_max| {
            let bounds =
                bounds(|handler| (handler.memory_max, handler.cpus, handler.cpus_max) = (memory_max, cpus, cpus_max));
            (bounds.pluggable / MIB, bounds.cpus_max)
        };
        assert_eq!(bounds(Some(256 * MIB), 1, Some(1)), (0, 1));
        assert_eq!(bounds(Some(1000 * MIB), 2, Some(200)), (640, 200), "whole blocks");
        assert_eq!(bounds(Some(1), 255, None), (0, 255), "never less than at boot");
    }

    #[test]
    fn kvm_is_given_up_by_all_daemons_of_this_boot() {
        let state = tempfile::tempdir().expect("a directory");
        let first = hypervisor(state.path(), |_| {});
        let before = first.accelerator().expect("an accelerator");
        let working = hypervisor(state.path(), |_| {});
        working.note_kvm_works();
        assert!(!working.give_up_kvm("one guest is slow").expect("nothing to record"));
        assert!(first.give_up_kvm("no answer").expect("recorded"));
        for later in [first, hypervisor(state.path(), |_| {})] {
            assert_eq!(later.accelerator().expect("an accelerator"), Accelerator::Tcg);
        }
        let file = state.path().join(KVM_UNUSABLE);
        assert_eq!(fs::read_to_string(&file).expect("the reason"), "no answer\n");
        fs::remove_file(file).expect("removed");
        assert_eq!(
            hypervisor(state.path(), |_| {}).accelerator().expect("an accelerator"),
            before,
            "it is tried again"
        );
        assert!(
            hypervisor(&state.path().join("missing"), |_| {}).give_up_kvm("").is_err(),
            "it would be tried forever"
        );
    }

    #[test]
    fn without_emulation_kvm_is_not_given_up() {
        let state = tempfile::tempdir().expect("a directory");
        assert!(
            !hypervisor(state.path(), |handler| handler.allow_emulation = false)
                .give_up_kvm("no answer")
                .expect("nothing to record")
        );
        assert!(!state.path().join(KVM_UNUSABLE).exists());
    }
}
