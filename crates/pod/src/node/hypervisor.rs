//! What runs virtual machines on this node.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use vm::{guest_image, qemu::Accelerator};

use crate::{Error, VmHandler, store::ContainerVm};

/// The device of the kernel's hypervisor.
pub(crate) const KVM: &str = "/dev/kvm";

/// A handler whose pods are virtual machines.
pub(crate) struct Hypervisor {
    pub(crate) handler: VmHandler,
    image: PathBuf,
    /// Whether a guest did not boot with KVM, although it boots when it is emulated.
    kvm_is_unusable: AtomicBool,
}

impl Hypervisor {
    pub(crate) fn new(handler: VmHandler, data_dir: &Path) -> Self {
        let image = handler.image.clone().unwrap_or_else(|| data_dir.join("vm"));
        Self { handler, image, kvm_is_unusable: AtomicBool::new(false) }
    }

    /// Checks that what it needs is on the node. Blocks.
    ///
    /// # Errors
    /// `FailedPrecondition` with the remedy.
    pub(crate) fn check(&self) -> Result<(), Error> {
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
        self.accelerator().map(drop)
    }

    /// Returns the image that guests boot. Blocks.
    pub(crate) fn image(&self) -> Result<guest_image::Image, Error> {
        guest_image::open(&self.image)
            .map_err(|error| Error::state(format!("{error}; make the image: pinion vm image")))
    }

    /// Returns how guests are run. Blocks.
    pub(crate) fn accelerator(&self) -> Result<Accelerator, Error> {
        let has_kvm = Path::new(KVM).exists() && !self.kvm_is_unusable.load(Ordering::Relaxed);
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

    /// Records that guests do not boot with KVM, and reports whether they may be emulated.
    pub(crate) fn give_up_kvm(&self) -> bool {
        if self.handler.allow_emulation {
            self.kvm_is_unusable.store(true, Ordering::Relaxed);
        }
        self.handler.allow_emulation
    }

    /// Returns what is on record about a container in a virtual machine.
    pub(crate) fn container_vm(&self) -> ContainerVm {
        let timeout = u32::try_from(self.handler.timeout.as_secs()).unwrap_or(u32::MAX);
        ContainerVm { handler: self.handler.name.clone(), timeout }
    }
}
