//! Writes the initramfs: the agent and the modules.

use std::{
    fmt::Write as _,
    io::{self, Write},
    path::Path,
};

use super::{
    cpio::Archive,
    elf::Elf,
    error::Error,
    input,
    modules::{self, Modules},
};

/// Maximum size of the agent, in bytes.
const AGENT_MAX: u64 = 256 << 20;

/// Reads the agent, which must be a static program: the initramfs has no libraries.
pub(super) fn read_agent(path: &Path) -> Result<Vec<u8>, Error> {
    const OPERATION: &str = "read agent";
    let content = input::read(path, AGENT_MAX)?;
    match Elf::parse(&content).map(|elf| elf.is_dynamic()) {
        Some(false) => Ok(content),
        Some(true) => Err(Error::invalid(OPERATION, path, "dynamically linked").with_remedy("link it statically")),
        None => Err(Error::invalid(OPERATION, path, "not an ELF program of 64 bits")),
    }
}

/// Writes the archive; one module at a time is in memory. `path` is that of the output, for errors.
pub(super) fn write(output: impl Write, path: &Path, agent: &[u8], modules: &Modules) -> Result<(), Error> {
    let mut archive = Archive::new(output);
    write_files(&mut archive, agent, modules).map_err(Error::io("write", path))?;
    let mut files: Vec<_> = modules.files.iter().collect();
    files.sort();
    for (name, source) in files {
        let module = modules::read(source)?;
        archive
            .file(&format!("modules/{name}"), 0o644, module.len() as u64, &module[..])
            .map_err(Error::io("write", path))?;
    }
    archive.finish().map_err(Error::io("write", path))
}

/// Writes all but the modules.
fn write_files(archive: &mut Archive<impl Write>, agent: &[u8], modules: &Modules) -> io::Result<()> {
    archive.directory("dev", 0o755)?;
    // The kernel opens it as stdio of /init; without it, the agent's messages at boot are lost.
    archive.character_device("dev/console", 0o600, (5, 1))?;
    archive.file("init", 0o755, agent.len() as u64, agent)?;
    archive.directory("proc", 0o755)?;
    archive.directory("run", 0o755)?;
    archive.directory("sys", 0o755)?;
    archive.directory("tmp", 0o1777)?;
    archive.directory("modules", 0o755)?;
    for (path, text) in [("modules/boot", boot_list(modules)), ("modules/demand", demand_list(modules))] {
        archive.file(path, 0o644, text.len() as u64, text.as_bytes())?;
    }
    Ok(())
}

fn boot_list(modules: &Modules) -> String {
    modules.boot.iter().map(|file| format!("/modules/{file}\n")).collect()
}

fn demand_list(modules: &Modules) -> String {
    let mut text = String::new();
    for module in &modules.demand {
        text.push_str(&module.name);
        text.push(':');
        module.files.iter().for_each(|file| write!(text, " /modules/{file}").expect("a String accepts text"));
        text.push('\n');
    }
    text
}
