use std::fs;

/// One line of a mountinfo file, proc(5).
#[derive(Clone, Debug)]
pub struct Mount {
    /// Path in the file system that is the root of the mount.
    pub root: String,
    /// Mount point.
    pub mount_point: String,
    /// Options of the mount.
    pub options: Vec<String>,
    /// `shared:N`, `master:N`, `unbindable`; empty for a private mount.
    pub propagation: Vec<String>,
    /// Type of the file system.
    pub kind: String,
    /// Source that was passed to mount(2).
    pub source: String,
    /// Options of the file system.
    pub filesystem_options: Vec<String>,
}

impl Mount {
    /// Parses the lines of a mountinfo file.
    pub fn parse(text: &str) -> Vec<Self> {
        let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let line = |line: &str| {
            let (mount, filesystem) = line.split_once(" - ")?;
            let mount: Vec<&str> = mount.split(' ').collect();
            let filesystem: Vec<&str> = filesystem.split(' ').collect();
            Some(Self {
                root: (*mount.get(3)?).to_owned(),
                mount_point: (*mount.get(4)?).to_owned(),
                options: list(mount.get(5)?),
                propagation: mount[6..].iter().map(|word| (*word).to_owned()).collect(),
                kind: (*filesystem.first()?).to_owned(),
                source: (*filesystem.get(1)?).to_owned(),
                filesystem_options: list(filesystem.get(2)?),
            })
        };
        text.lines().filter_map(line).collect()
    }

    /// Whether the mount or its file system has an option.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|word| word == option) || self.filesystem_options.iter().any(|word| word == option)
    }

    /// Returns `shared`, `slave`, `shared,slave`, `unbindable` or `private`.
    pub fn propagation(&self) -> String {
        let word = |text: &String| match text.split(':').next()? {
            "shared" => Some("shared"),
            "master" => Some("slave"),
            "unbindable" => Some("unbindable"),
            _ => None,
        };
        let words: Vec<&str> = self.propagation.iter().filter_map(word).collect();
        if words.is_empty() { "private".to_owned() } else { words.join(",") }
    }
}

/// Lists the mounts that a process sees; empty if the process does not exist.
pub fn mounts_of(pid: i32) -> Vec<Mount> {
    Mount::parse(&fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default())
}
