use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// A cgroup: the same path in every cgroup tree of the machine (v1, v2 or both).
#[derive(Clone, Debug)]
pub struct Cgroup {
    path: String,
}

/// Lists the mounted trees: mount point and controllers (`None` for v2).
fn trees() -> Vec<(PathBuf, Option<Vec<String>>)> {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("read /proc/self/mounts");
    let tree = |line: &str| {
        let field: Vec<&str> = line.split(' ').collect();
        match field[2] {
            "cgroup" => Some((field[1].into(), Some(field[3].split(',').map(str::to_owned).collect()))),
            "cgroup2" => Some((field[1].into(), None)),
            _ => None,
        }
    };
    mounts.lines().filter_map(tree).collect()
}

impl Cgroup {
    /// Returns the cgroup of an absolute path, or of a scope in systemd's root slice (`-.slice:prefix:name`).
    pub fn new(path: &str) -> Self {
        let path = match path.split(':').collect::<Vec<_>>()[..] {
            ["-.slice", prefix, name] => format!("{prefix}-{name}.scope"),
            _ => path.trim_start_matches('/').to_owned(),
        };
        Self { path }
    }

    /// Whether the runtimes use the systemd cgroup driver (`PINION_OCI_DRIVER=systemd`).
    pub fn uses_systemd() -> bool {
        env::var_os("PINION_OCI_DRIVER").is_some_and(|driver| driver == "systemd")
    }

    /// Returns the `cgroupsPath` of a container. The name of the cgroup starts with the id with both cgroup drivers.
    pub fn path_of(id: &str) -> String {
        match id.split_once('-') {
            Some((prefix, name)) if Self::uses_systemd() => format!("-.slice:{prefix}:{name}"),
            _ => format!("/{id}"),
        }
    }

    /// Returns the existing directories of the cgroup.
    pub fn directories(&self) -> Vec<PathBuf> {
        trees().into_iter().map(|(tree, _)| tree.join(&self.path)).filter(|path| path.is_dir()).collect()
    }

    /// Whether the controllers of the machine are in v1 trees.
    pub fn is_v1() -> bool {
        trees()
            .iter()
            .any(|(_, controllers)| controllers.as_ref().is_some_and(|list| list.iter().any(|c| c == "memory")))
    }

    /// Returns the directory of the cgroup in the controller's v1 tree if it exists, or in the v2 tree.
    pub fn directory(&self, controller: &str) -> PathBuf {
        let all = trees();
        let v1 = all.iter().find(|(_, list)| list.as_ref().is_some_and(|list| list.iter().any(|c| c == controller)));
        let tree = v1.or_else(|| all.iter().find(|(_, list)| list.is_none())).expect("a cgroup tree");
        tree.0.join(&self.path)
    }

    /// Reads a file of the cgroup, given its names in v1 (`memory.limit_in_bytes`) and v2 (`memory.max`).
    #[track_caller]
    pub fn read(&self, v1: &str, v2: &str) -> String {
        let (controller, _) = v1.split_once('.').expect("the name starts with a controller");
        let file = self.directory(controller).join(if Self::is_v1() { v1 } else { v2 });
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).trim().to_owned()
    }

    /// Lists the processes in the cgroup and its descendants in all trees.
    pub fn processes(&self) -> Vec<i32> {
        let mut all: Vec<i32> = self.subtree().iter().flat_map(|directory| processes(directory)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Lists the directories of the cgroup and of its descendants, deepest first.
    pub(crate) fn subtree(&self) -> Vec<PathBuf> {
        let mut all = Vec::new();
        for directory in self.directories() {
            collect(&directory, &mut all);
        }
        all
    }
}

fn collect(directory: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), all);
        }
    }
    all.push(directory.to_owned());
}

fn processes(directory: &Path) -> Vec<i32> {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Lists the top-level cgroups whose names start with `prefix`.
pub(crate) fn top_level_with_prefix(prefix: &str) -> Vec<Cgroup> {
    let entries = trees().into_iter().flat_map(|(tree, _)| fs::read_dir(tree).into_iter().flatten().flatten());
    let names =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.starts_with(prefix));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.dedup();
    names.iter().map(|name| Cgroup::new(name)).collect()
}
