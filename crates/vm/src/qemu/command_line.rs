use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind};

/// Id of the virtio-serial device.
pub(super) const SERIAL: &str = "serial";
/// Id of the device whose memory can be plugged.
pub(super) const PLUGGABLE_MEMORY: &str = "memory";
/// What memory is plugged in multiples of, and the size of memory a multiple of, in bytes.
pub const MEMORY_BLOCK: u64 = 2 << 20;
/// Most processors of QEMU's machine `pc`.
pub const CPUS_MAX: u32 = 255;
/// Most ports of QEMU, including port 0, which is not used.
pub const PORTS_MAX: u32 = 511;
/// Default for the number of ports. Measured with QEMU 7.2 and Linux 6.1: the boot takes equally long with 31 and 511; QEMU
/// and the guest occupy 3 MiB more with 127 than with 31, and 18 MiB more with 511.
pub const DEFAULT_PORTS: u32 = 127;
/// Name of the monitor socket in the directory of the sockets.
pub const SOCKET: &str = "qmp";

/// What executes the instructions of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU translates them. Slow; for tests on machines without KVM.
    Tcg,
}

/// Configuration of a virtual machine. All paths are those that QEMU sees in its jail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Path of QEMU.
    pub program: PathBuf,
    /// Path of the kernel: an ELF file with a PVH entry point, or a bzImage.
    pub kernel: PathBuf,
    /// Path of the initramfs.
    pub initramfs: PathBuf,
    /// Parameters of the kernel, after those that every guest gets.
    pub kernel_parameters: Vec<String>,
    /// Memory to boot with, in bytes.
    pub memory: u64,
    /// Memory that it can have at most, in bytes.
    pub memory_max: u64,
    /// A file of the size of `memory` that is its memory, instead of an anonymous one.
    pub memory_file: Option<PathBuf>,
    /// Processors to boot with.
    pub cpus: u32,
    /// Processors that it can have at most.
    pub cpus_max: u32,
    /// Type of the machine, as [`Qemu::machine_type`] returns it. `None`: the newest `pc` of this QEMU.
    ///
    /// [`Qemu::machine_type`]: super::Qemu::machine_type
    pub machine: Option<String>,
    /// Whether it waits for [`Qemu::load`] and does not boot.
    ///
    /// [`Qemu::load`]: super::Qemu::load
    pub incoming: bool,
    /// What executes its instructions.
    pub accelerator: Accelerator,
    /// Directory of the monitor socket.
    pub sockets: PathBuf,
    /// Number of ports, including port 0, which is not used.
    pub ports: u32,
    /// Whether it has a watchdog, whose expiry ends QEMU.
    pub watchdog: bool,
}

/// Returns the command line of QEMU, beginning with the program. The virtual machine waits for [`resume`]; its console is
/// the standard output of QEMU. QEMU exits when the guest shuts down, reboots or panics.
///
/// [`resume`]: crate::vmm::Vmm::resume
///
/// # Errors
/// `Invalid` if a path is not UTF-8 or has control characters, for invalid parameters of the kernel, and for sizes that
/// contradict each other.
pub fn command_line(configuration: &Configuration) -> Result<Vec<String>, Error> {
    validate(configuration)?;
    let mut arguments = vec![text(&configuration.program)?];
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|&word| word.to_owned()));
    let (accelerator, cpu) = match configuration.accelerator {
        Accelerator::Kvm => ("kvm", "host"),
        Accelerator::Tcg => ("tcg,thread=multi", "max"),
    };
    add(&["-no-user-config", "-nodefaults", "-display", "none", "-no-reboot", "-S"]);
    add(&["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"]);
    // i440fx: devices can be plugged into its PCI bus without a root port for each of them.
    let machine = configuration.machine.as_deref().unwrap_or("pc");
    add(&["-machine", &format!("{machine},memory-backend=ram,usb=off,vmport=off,hpet=off,dump-guest-core=off")]);
    add(&["-accel", accelerator, "-cpu", cpu]);
    add(&["-smp", &format!("cpus={},maxcpus={}", configuration.cpus, configuration.cpus_max)]);
    add(&["-kernel", &text(&configuration.kernel)?, "-initrd", &text(&configuration.initramfs)?]);
    add(&["-append", &kernel_command_line(configuration)]);
    arguments.extend(memory_arguments(configuration)?);
    arguments.extend(device_arguments(configuration)?);
    if configuration.incoming {
        arguments.extend(["-incoming".to_owned(), "defer".to_owned()]);
    }
    Ok(arguments)
}

/// virtiofsd maps the memory: it is shared.
fn memory_arguments(configuration: &Configuration) -> Result<Vec<String>, Error> {
    let &Configuration { memory, memory_max, ref memory_file, .. } = configuration;
    let backend = |id: &str, size: u64| format!("memory-backend-memfd,id={id},size={size},share=on");
    let boot = match memory_file {
        None => backend("ram", memory),
        Some(file) => format!("memory-backend-file,id=ram,size={memory},mem-path={},share=on", escape(&text(file)?)),
    };
    let mut arguments = vec!["-object".to_owned(), boot, "-m".to_owned()];
    match memory_max - memory {
        0 => arguments.push(format!("size={memory}B")),
        pluggable => {
            arguments.extend([format!("size={memory}B,maxmem={memory_max}B"), "-object".to_owned()]);
            arguments.extend([backend("pluggable", pluggable), "-device".to_owned()]);
            arguments.push(format!(
                "virtio-mem-pci,id={PLUGGABLE_MEMORY},memdev=pluggable,block-size={MEMORY_BLOCK},requested-size=0"
            ));
        }
    }
    Ok(arguments)
}

fn device_arguments(configuration: &Configuration) -> Result<Vec<String>, Error> {
    let socket = escape(&text(&configuration.sockets.join(SOCKET))?);
    let serial = format!("virtio-serial-pci,id={SERIAL},max_ports={}", configuration.ports);
    let socket = format!("unix:{socket},server=on,wait=off");
    let mut arguments = vec![
        // Not a file at /dev/stdout: opening that needs /proc, and the permission to open a pipe of another user.
        ["-chardev", "stdio,id=console,signal=off"],
        ["-serial", "chardev:console"],
        ["-device", "pvpanic"],
        ["-device", "virtio-rng-pci,id=random"],
        ["-device", &serial],
        ["-qmp", &socket],
    ];
    if configuration.watchdog {
        arguments.extend([["-device", "i6300esb,id=watchdog"], ["-action", "watchdog=poweroff"]]);
    }
    Ok(arguments.concat().into_iter().map(str::to_owned).collect())
}

fn kernel_command_line(configuration: &Configuration) -> String {
    // A panic reboots at once, which ends QEMU. Checks of timers and of the clock take time, and fail when the host is busy.
    let mut parameters = vec!["console=ttyS0", "quiet", "panic=-1", "reboot=t", "tsc=reliable", "no_timer_check"];
    parameters.extend(["noreplace-smp", "random.trust_cpu=on"]);
    // Memory that is plugged is used at once, and most of it only for what can be moved, so that it can be given back.
    parameters.extend(["memhp_default_state=online", "memory_hotplug.online_policy=auto-movable"]);
    // Where memory is plugged, Linux reserves 64 MiB for devices that cannot reach all of it. There are no such devices.
    parameters.push("swiotlb=noforce");
    if configuration.accelerator == Accelerator::Tcg {
        // No instruction is executed speculatively.
        parameters.push("mitigations=off");
    }
    parameters.extend(configuration.kernel_parameters.iter().map(String::as_str));
    parameters.join(" ")
}

fn validate(configuration: &Configuration) -> Result<(), Error> {
    let &Configuration { memory, memory_max, cpus, cpus_max, ports, .. } = configuration;
    let is_parameter = |text: &String| !text.is_empty() && text.chars().all(|character| character.is_ascii_graphic());
    let invalid = configuration.kernel_parameters.iter().find(|parameter| !is_parameter(parameter));
    let is_type = |name: &String| {
        name.chars().all(|character| character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '_'))
    };
    let cause = if let Some(parameter) = invalid {
        format!("kernel parameter {parameter:?} is not a word of ASCII characters")
    } else if let Some(machine) = configuration.machine.as_ref().filter(|name| name.is_empty() || !is_type(name)) {
        format!("{machine:?} is not the type of a machine")
    } else if memory == 0 || memory_max < memory || [memory, memory_max].iter().any(|size| size % MEMORY_BLOCK != 0) {
        format!("memory of {memory} to {memory_max} bytes; they must be multiples of {MEMORY_BLOCK}")
    } else if cpus == 0 || cpus_max < cpus || cpus_max > CPUS_MAX {
        format!("{cpus} to {cpus_max} processors; at most {CPUS_MAX} are possible")
    } else if !(2..=PORTS_MAX).contains(&ports) {
        format!("{ports} ports; 2 to {PORTS_MAX} are possible")
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Invalid, "configure QEMU", cause))
}

/// Returns a path for the command line.
fn text(path: &Path) -> Result<String, Error> {
    let valid = path.to_str().filter(|text| !text.is_empty() && !text.contains(char::is_control));
    let invalid = || Error::new(ErrorKind::Invalid, "configure QEMU", format!("invalid path {}", path.display()));
    valid.map(str::to_owned).ok_or_else(invalid)
}

/// Escapes a value of an option: a comma begins the next one.
fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration() -> Configuration {
        Configuration {
            program: "/usr/bin/qemu-system-x86_64".into(),
            kernel: "/image/a,b".into(),
            initramfs: "/image/initramfs".into(),
            kernel_parameters: vec!["pinion.debug=1".to_owned()],
            memory: 256 << 20,
            memory_max: 1 << 30,
            cpus: 1,
            cpus_max: 4,
            memory_file: None,
            machine: None,
            incoming: false,
            accelerator: Accelerator::Kvm,
            sockets: "/run/a,id=b".into(),
            ports: DEFAULT_PORTS,
            watchdog: true,
        }
    }

    fn value(arguments: &[String], option: &str) -> Vec<String> {
        let pairs = arguments.windows(2).filter(|pair| pair[0] == option);
        pairs.map(|pair| pair[1].clone()).collect()
    }

    #[test]
    fn values_of_options_are_escaped_and_paths_of_files_are_not() {
        let arguments = command_line(&configuration()).expect("command line");
        assert_eq!(value(&arguments, "-qmp"), ["unix:/run/a,,id=b/qmp,server=on,wait=off"]);
        assert_eq!(value(&arguments, "-kernel"), ["/image/a,b"]);
    }

    #[test]
    fn memory_can_be_plugged_if_there_can_be_more() {
        let mut configuration = configuration();
        let arguments = command_line(&configuration).expect("command line");
        assert_eq!(value(&arguments, "-m"), ["size=268435456B,maxmem=1073741824B"]);
        assert_eq!(value(&arguments, "-object").len(), 2);
        configuration.memory_max = configuration.memory;
        let arguments = command_line(&configuration).expect("command line");
        assert_eq!(value(&arguments, "-m"), ["size=268435456B"]);
        assert_eq!(value(&arguments, "-object").len(), 1);
    }

    #[test]
    fn a_saved_machine_differs_in_its_memory_and_waits() {
        let boot = command_line(&configuration()).expect("command line");
        let saved = Configuration {
            machine: Some("pc-i440fx-7.2".to_owned()),
            incoming: true,
            memory_file: Some("/proc/self/fd/3".into()),
            ..configuration()
        };
        let load = command_line(&saved).expect("command line");
        assert!(value(&load, "-machine")[0].starts_with("pc-i440fx-7.2,memory-backend=ram,"));
        assert!(value(&load, "-object")[0].ends_with(",size=268435456,mem-path=/proc/self/fd/3,share=on"));
        assert_eq!((value(&boot, "-incoming").len(), value(&load, "-incoming")), (0, vec!["defer".to_owned()]));
    }

    #[test]
    fn mitigations_are_off_under_emulation_only() {
        let mut configuration = configuration();
        for (accelerator, off) in [(Accelerator::Kvm, false), (Accelerator::Tcg, true)] {
            configuration.accelerator = accelerator;
            let append = value(&command_line(&configuration).expect("command line"), "-append");
            assert_eq!(append[0].contains("mitigations=off"), off);
            assert!(append[0].ends_with(" pinion.debug=1"));
        }
    }

    #[test]
    fn contradictions_and_words_that_are_several_are_refused() {
        let changes: [fn(&mut Configuration); 9] = [
            |configuration| configuration.kernel_parameters = vec!["a b".to_owned()],
            |configuration| configuration.kernel_parameters = vec![String::new()],
            |configuration| configuration.memory_max = configuration.memory - MEMORY_BLOCK,
            |configuration| configuration.memory += 1,
            |configuration| configuration.cpus = 5,
            |configuration| configuration.cpus_max = CPUS_MAX + 1,
            |configuration| configuration.ports = PORTS_MAX + 1,
            |configuration| configuration.sockets = "/run/a\nb".into(),
            |configuration| configuration.machine = Some("pc,accel=kvm".to_owned()),
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut configuration = configuration();
            change(&mut configuration);
            let error = command_line(&configuration).expect_err(&format!("change {index}"));
            assert_eq!(error.kind, ErrorKind::Invalid);
        }
    }
}
