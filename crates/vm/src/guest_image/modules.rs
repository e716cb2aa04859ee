//! Selects the modules of a guest and puts them in load order: modules.dep(5), modules.softdep and modules.alias of
//! depmod(8).

use std::{
    collections::{HashMap, HashSet},
    path::{Component, Path, PathBuf},
};

use super::{
    decompress::Compression,
    error::{Error, ErrorKind},
    input,
};

/// Modules that the agent loads at boot and cannot work without.
const REQUIRED: [&str; 5] = ["virtio_pci", "virtio_console", "virtiofs", "overlay", "virtio_net"];
/// Modules that the agent loads at boot if the image has them.
const BOOT_OPTIONAL: [&str; 6] =
    ["virtio_blk", "erofs", "vmw_vsock_virtio_transport", "virtio_balloon", "virtio_mem", "virtio_rng"];
/// Modules that are loaded when the kernel requests them for a pod, if the image has them: file systems, and what pods with
/// CAP_NET_ADMIN do with links, iptables and nft.
const DEMAND: [&str; 33] = [
    "ext4",
    "squashfs",
    "nf_tables",
    "nft_chain_nat",
    "nft_ct",
    "nft_masq",
    "nft_redir",
    "nft_compat",
    "xt_nat",
    "xt_MASQUERADE",
    "xt_conntrack",
    "xt_addrtype",
    "xt_comment",
    "xt_REDIRECT",
    "xt_tcpudp",
    "xt_owner",
    "xt_mark",
    "xt_multiport",
    "ipt_REJECT",
    "nft_reject_inet",
    "iptable_nat",
    "iptable_filter",
    "iptable_mangle",
    "ip6table_nat",
    "ip6table_filter",
    "ip6table_mangle",
    "br_netfilter",
    "bridge",
    "veth",
    "tun",
    "dummy",
    "vxlan",
    "macvlan",
];

/// Maximum size of a module, packed and unpacked, in bytes.
const MODULE_MAX: u64 = 64 << 20;
/// Maximum size of one of depmod's files, in bytes. `modules.alias` of a distribution's kernel has about 2 MiB.
const INDEX_MAX: u64 = 64 << 20;
const OPERATION: &str = "select modules in";

/// A name under which the kernel requests a module: that of the module, or an alias of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OnDemand {
    pub(super) name: String,
    /// File names in the initramfs in load order, the last one of the module itself.
    pub(super) files: Vec<String>,
}

/// Modules of an image.
#[derive(Debug)]
pub(super) struct Modules {
    /// File names in the initramfs of those that are loaded at boot, in load order.
    pub(super) boot: Vec<String>,
    pub(super) demand: Vec<OnDemand>,
    /// File name in the initramfs and path on the host of all modules, in load order.
    pub(super) files: Vec<(String, PathBuf)>,
    /// Names of optional modules that the kernel has neither as a module nor built in.
    pub(super) missing_optional: Vec<String>,
}

impl Modules {
    /// Selects from the modules of a kernel: `/lib/modules/RELEASE`. Modules that are built in are left out.
    ///
    /// # Errors
    /// `NotFound` without `modules.dep` or if a required module is missing; `Invalid` if depmod's files are
    /// malformed.
    pub(super) fn select(directory: &Path) -> Result<Self, Error> {
        let index = Index::read(directory)?;
        let missing =
            |names: &[&'static str]| names.iter().copied().filter(|name| !index.has(name)).collect::<Vec<_>>();
        let missing_required = missing(&REQUIRED);
        if !missing_required.is_empty() {
            let cause = format!("the kernel has no {}", missing_required.join(", "));
            return Err(Error::new(ErrorKind::NotFound, OPERATION, directory, cause).with_remedy(
                "use a kernel package of the distribution for virtual machines, with all of its modules",
            ));
        }
        let boot_names = [&REQUIRED[..], &BOOT_OPTIONAL].concat();
        let boot = index.load_order(&boot_names);
        let all = index.load_order(&[&boot_names[..], &DEMAND].concat());
        let at_boot: HashSet<&str> = boot.iter().map(|module| module.path.as_str()).collect();
        let later = all.iter().filter(|module| !at_boot.contains(module.path.as_str()));
        let demand = index.on_demand(later.map(|module| normalize(stem(&module.path))), &read_aliases(directory)?);
        Ok(Self {
            boot: boot.into_iter().map(Module::file_name).collect(),
            demand,
            files: all.into_iter().map(|module| (module.file_name(), directory.join(&module.path))).collect(),
            missing_optional: missing(&[&BOOT_OPTIONAL[..], &DEMAND].concat()).into_iter().map(str::to_owned).collect(),
        })
    }
}

/// Reads a module, and unpacks it if it is compressed: not every kernel unpacks modules.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let content = input::read(path, MODULE_MAX)?;
    match Compression::detect(&content) {
        Some(compression) => {
            compression.unpack(&content, MODULE_MAX).map_err(|error| Error::invalid("unpack module", path, error))
        }
        None => Ok(content),
    }
}

/// A module of the kernel.
#[derive(Debug)]
struct Module {
    /// Path relative to the directory of the modules.
    path: String,
    /// Normalized names of modules that have to be loaded before it.
    dependencies: Vec<String>,
}

impl Module {
    /// Returns its name in the initramfs, without the suffix of a compression.
    fn file_name(&self) -> String {
        format!("{}.ko", stem(&self.path))
    }
}

/// What depmod knows about the modules of a kernel. Names are normalized.
#[derive(Debug, Default)]
struct Index {
    modules: HashMap<String, Module>,
    builtin: HashSet<String>,
}

impl Index {
    fn read(directory: &Path) -> Result<Self, Error> {
        let path = directory.join("modules.dep");
        let text = input::read_text(&path, INDEX_MAX).map_err(|error| match error.kind {
            ErrorKind::NotFound => error.with_remedy(depmod_command(directory)),
            _ => error,
        })?;
        let mut index = Self { modules: HashMap::new(), builtin: read_builtin(directory)? };
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let module = parse_dependencies(line);
            let (name, module) = module.ok_or_else(|| {
                Error::invalid("parse", &path, format!("line {line:?} is not `PATH: PATH…`"))
                    .with_remedy(depmod_command(directory))
            })?;
            index.modules.insert(name, module);
        }
        index.add_soft_dependencies(directory)?;
        Ok(index)
    }

    fn has(&self, name: &str) -> bool {
        let name = normalize(name);
        self.builtin.contains(&name) || self.modules.contains_key(&name)
    }

    /// Returns modules and all of their dependencies, dependencies first. Names that are not of a module are skipped.
    fn load_order(&self, names: &[&str]) -> Vec<&Module> {
        let mut order = Vec::new();
        let mut visited = HashSet::new();
        for name in names {
            self.visit(&normalize(name), &mut visited, &mut order);
        }
        order
    }

    fn visit<'a>(&'a self, name: &str, visited: &mut HashSet<&'a str>, order: &mut Vec<&'a Module>) {
        let Some((name, module)) = self.modules.get_key_value(name) else { return };
        if visited.insert(name) {
            module.dependencies.iter().for_each(|dependency| self.visit(dependency, visited, order));
            order.push(module);
        }
    }

    /// Adds `softdep MODULE … pre: NAMES`: algorithms of the kernel's crypto API that a module requests when it is
    /// loaded, and which nothing in the guest would load. A name that the kernel itself provides is left out.
    fn add_soft_dependencies(&mut self, directory: &Path) -> Result<(), Error> {
        let soft_dependencies = read_optional(&directory.join("modules.softdep"))?;
        if soft_dependencies.is_empty() {
            return Ok(());
        }
        let aliases = read_aliases(directory)?;
        for line in soft_dependencies.lines() {
            let Some((name, dependencies)) = line.strip_prefix("softdep ").and_then(|rest| rest.split_once(' ')) else {
                continue;
            };
            let names: Vec<_> =
                pre_dependencies(dependencies).flat_map(|name| self.providers(&normalize(name), &aliases)).collect();
            if let Some(module) = self.modules.get_mut(&normalize(name)) {
                module.dependencies.extend(names);
            }
        }
        Ok(())
    }

    /// Returns the names and aliases of modules with what is to be loaded for each. Aliases with wildcards are those of hardware.
    fn on_demand(&self, modules: impl Iterator<Item = String>, aliases: &[(String, String)]) -> Vec<OnDemand> {
        let mut all = Vec::new();
        for module in modules {
            let files: Vec<String> = self.load_order(&[&module]).into_iter().map(Module::file_name).collect();
            let its_aliases = aliases.iter().filter(|(alias, of)| *of == module && !alias.contains(['*', '?', '[']));
            for name in std::iter::once(&module).chain(its_aliases.map(|(alias, _)| alias)) {
                all.push(OnDemand { name: name.clone(), files: files.clone() });
            }
        }
        all
    }

    /// Returns the modules that provide a name or alias; none if the kernel itself does.
    fn providers(&self, name: &str, aliases: &[(String, String)]) -> Vec<String> {
        if self.builtin.contains(name) {
            Vec::new()
        } else if self.modules.contains_key(name) {
            vec![name.to_owned()]
        } else {
            aliases.iter().filter(|(alias, _)| alias == name).map(|(_, module)| module.clone()).collect()
        }
    }
}

/// Returns the names of `pre: NAMES post: NAMES`, the former only.
fn pre_dependencies(line: &str) -> impl Iterator<Item = &str> {
    let mut is_pre = false;
    line.split_ascii_whitespace().filter(move |word| match *word {
        "pre:" | "post:" => {
            is_pre = *word == "pre:";
            false
        }
        _ => is_pre,
    })
}

/// Parses a line of `modules.dep`, `PATH: PATH…`. The dependency that has to be loaded first is the last one.
fn parse_dependencies(line: &str) -> Option<(String, Module)> {
    let (path, dependencies) = line.split_once(':')?;
    let is_normal = |component| matches!(component, Component::Normal(_));
    if !Path::new(path).components().all(is_normal) || !path.contains(".ko") {
        return None;
    }
    let dependencies = dependencies.split_ascii_whitespace().rev().map(|path| normalize(stem(path))).collect();
    Some((normalize(stem(path)), Module { path: path.to_owned(), dependencies }))
}

/// Returns the names of what is built into the kernel: modules, and since Linux 5.2 their aliases.
fn read_builtin(directory: &Path) -> Result<HashSet<String>, Error> {
    let builtin = read_optional(&directory.join("modules.builtin"))?;
    let mut names: HashSet<_> = builtin.lines().map(|path| normalize(stem(path))).collect();
    let information = read_optional(&directory.join("modules.builtin.modinfo"))?;
    let fields = information.split('\0').filter_map(|field| field.split_once('='));
    names.extend(fields.filter(|(key, _)| key.ends_with(".alias")).map(|(_, alias)| normalize(alias)));
    Ok(names)
}

/// Returns alias and module of the lines of `modules.alias`.
fn read_aliases(directory: &Path) -> Result<Vec<(String, String)>, Error> {
    let text = read_optional(&directory.join("modules.alias"))?;
    let aliases = text.lines().filter_map(|line| line.strip_prefix("alias ")?.split_once(' '));
    Ok(aliases.map(|(alias, module)| (normalize(alias), normalize(module))).collect())
}

/// Reads one of depmod's files; empty if it does not exist.
fn read_optional(path: &Path) -> Result<String, Error> {
    match input::read_text(path, INDEX_MAX) {
        Err(Error { kind: ErrorKind::NotFound, .. }) => Ok(String::new()),
        other => other,
    }
}

/// Returns the command that makes the files of `ROOT/lib/modules/RELEASE`.
fn depmod_command(directory: &Path) -> String {
    let release = directory.file_name().unwrap_or_default().display();
    let root = directory.ancestors().nth(3).filter(|root| !root.as_os_str().is_empty());
    format!("run depmod -b {} {release}", root.unwrap_or(Path::new("/")).display())
}

/// Returns the file name of a module without `.ko` and the suffix of a compression.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split_once(".ko").map_or(name, |(stem, _)| stem)
}

/// Names of modules are equal if they differ in `-` and `_` only.
fn normalize(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
pub(super) mod tests;
