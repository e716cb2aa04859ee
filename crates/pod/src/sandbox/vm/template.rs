//! Guests that begin from a template.
//!
//! ```text
//! first pod    boot ─▶ the agent answers ─▶ pause, save ─▶ devices, continue ─▶ configure       publish in the background
//! later pods   load ─▶ devices, continue ─▶ the agent answers ─▶ configure
//! ```
//! A process in the container of the virtual machine monitor makes the memory of the guest, or a copy of the template's: the cgroup of
//! the pod pays for it. The memory is not shared with the template, because virtiofsd maps it.

use std::{
    fs::{self, File},
    path::Path,
    time::Duration,
};

use tokio::sync::OwnedMutexGuard;
use vm::{
    guest_image::Image,
    qemu::{self, Accelerator, Qemu, SavedMemory},
    template::{Draft, Key, Template},
    vmm::Vmm,
};

use super::{Boot, BootFailure, IMAGE};
use crate::{
    Error, ErrorKind,
    container::vm::from_vmm,
    error::failed,
    operation::{blocking, failpoint},
    process,
    store::Container,
};

/// Where the template is in the container of the virtual machine monitor.
pub(super) const DIRECTORY: &str = "/run/template";
/// What the agent replaces by the path of the memory.
const MEMORY: &str = "{memory}";
/// Beginning of the target of a descriptor of that memory.
const MEMORY_LINK: &[u8] = b"/memfd:pinion-guest-memory";
/// How long it may take to save or load a guest without its memory.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How a guest begins.
pub(super) enum Origin {
    /// It boots.
    Boot,
    /// It boots, and becomes the template with this key.
    Save(Key, OwnedMutexGuard<()>),
    /// It continues from a template.
    Load(Template),
}

impl Origin {
    /// Returns the template that it continues from.
    pub(super) fn template(&self) -> Option<&Template> {
        match self {
            Self::Load(template) => Some(template),
            Self::Boot | Self::Save(..) => None,
        }
    }
}

/// Returns the command of a virtual machine monitor: one with a template needs its memory before it starts.
pub(super) fn launch(origin: &Origin, image: &Image, memory: u64, command: Vec<String>) -> Vec<String> {
    let from = match origin {
        Origin::Boot => return command,
        Origin::Save(..) => "-".to_owned(),
        Origin::Load(_) => format!("{DIRECTORY}/{}", Template::MEMORY),
    };
    let agent = image.agent().unwrap_or_default();
    let agent = Path::new(IMAGE).join(agent.file_name().unwrap_or_default());
    let launcher = [agent.to_string_lossy().into_owned(), "launch".to_owned(), memory.to_string(), from];
    launcher.into_iter().chain(command).collect()
}

impl Boot<'_> {
    /// Decides how the guest begins, and changes the configuration of the virtual machine monitor accordingly.
    pub(super) fn origin(&self, image: &Image, configuration: &mut qemu::Configuration) -> Result<Origin, Error> {
        // One that KVM does not run is not a template, and its failure would count as that of KVM.
        let is_tried = self.accelerator == Accelerator::Tcg || self.hypervisor.kvm_works();
        if self.saved.is_some() || !is_tried || !self.hypervisor.uses_templates() || image.agent().is_none() {
            return Ok(Origin::Boot);
        }
        configuration.memory_file = Some(MEMORY.into());
        let command = qemu::command_line(configuration).map_err(from_vmm)?;
        let templates = &self.hypervisor.templates;
        let find = || {
            let key = Key::new(&configuration.program, &command, &image.description.id)?;
            Ok::<_, vm::Error>((templates.find(&key), key))
        };
        let (found, key) = offload::in_place(find).map_err(from_vmm)?;
        let origin = match (found, self.hypervisor.making.clone().try_lock_owned()) {
            (Some(template), _) => Origin::Load(template),
            (None, Ok(making)) => Origin::Save(key, making),
            // Another pod is becoming the template.
            (None, Err(_)) => Origin::Boot,
        };
        match origin {
            Origin::Boot => configuration.memory_file = None,
            Origin::Save(..) => {}
            Origin::Load(_) => configuration.incoming = true,
        }
        Ok(origin)
    }

    /// Brings the guest to where devices are plugged: loads it, or saves it when it has booted.
    pub(super) async fn prepare(&self, qemu: &Qemu, monitor: &Container, origin: Origin) -> Result<(), BootFailure> {
        match origin {
            Origin::Boot => Ok(()),
            Origin::Load(template) => {
                let state = offload::in_place(|| template.state());
                let state = state.map_err(|error| BootFailure::of_guest(from_vmm(error)))?;
                let loaded = qemu.load(state, SavedMemory::Apart, TIMEOUT).await;
                loaded.map_err(|error| BootFailure::of_guest(from_vmm(error)))?;
                failpoint::reach("vm.template.loaded");
                Ok(())
            }
            Origin::Save(key, making) => {
                let guest = self.run_guest(qemu).await?;
                guest.close();
                for port in qemu.ports() {
                    qemu.remove_port(&port).await.map_err(from_vmm)?;
                }
                qemu.pause().await.map_err(from_vmm)?;
                match self.save(qemu, monitor, key, making).await {
                    Ok((draft, making)) => publish(draft, making),
                    Err(error) if qemu.is_gone() => return Err(BootFailure::of_guest(error)),
                    Err(error) => {
                        self.hypervisor.postpone_templates();
                        tracing::warn!("make a template of guests: {error}; a pod tries it again in some minutes");
                    }
                }
                Ok(())
            }
        }
    }

    /// Saves a paused guest, which has nothing of its pod yet.
    async fn save(
        &self,
        qemu: &Qemu,
        monitor: &Container,
        key: Key,
        making: OwnedMutexGuard<()>,
    ) -> Result<(Draft, OwnedMutexGuard<()>), Error> {
        let templates = self.hypervisor.templates.clone();
        let draft = blocking(move || templates.begin(&key).map_err(from_vmm)).await?;
        failpoint::reach("vm.template.begun");
        let state = draft.state().map_err(from_vmm)?;
        qemu.save(state, SavedMemory::Apart, TIMEOUT).await.map_err(from_vmm)?;
        let (pid, start_time) = (monitor.record().pid, monitor.record().start_time);
        // The maker of the next one waits for the end of this, which a pod that is stopped does not.
        let copy = blocking(move || {
            draft.copy_memory(&memory_of(pid, start_time)?).map_err(from_vmm)?;
            Ok((draft, making))
        });
        let late = |_| Error::new(ErrorKind::DeadlineExceeded, "copy the memory of the guest: the disk is too slow");
        tokio::time::timeout(TIMEOUT, copy).await.map_err(late)?
    }
}

/// Writes a template to the disk, which the pod does not wait for.
fn publish(draft: Draft, making: OwnedMutexGuard<()>) {
    offload::blocking(move || {
        if let Err(error) = draft.publish() {
            tracing::warn!("{error}; the next pod makes a template");
        }
        failpoint::reach("vm.template.published");
        drop(making);
    });
}

/// Opens the memory of the guest of a virtual machine monitor. Blocks.
fn memory_of(pid: u32, start_time: u64) -> Result<File, Error> {
    let open = || {
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
            let path = entry?.path();
            // QEMU may have closed it.
            let Ok(target) = fs::read_link(&path) else { continue };
            if target.as_os_str().as_encoded_bytes().starts_with(MEMORY_LINK) {
                return File::open(path);
            }
        }
        Err(std::io::ErrorKind::NotFound.into())
    };
    let memory = open().map_err(failed("open the memory of the guest"))?;
    // The pid may have been reused before.
    let process = process::find(pid, start_time);
    process.map(|_| memory).ok_or_else(|| Error::state("the virtual machine monitor has ended"))
}
