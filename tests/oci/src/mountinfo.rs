use std::fs;

/// One line of a mountinfo file, proc(5).
#[derive(Clone, Debug)]
pub struct Mount {
    /// What of the file system is mounted.
    pub root: String,
    /// Where.
    pub at: String,
    /// Options of the mount.
    pub options: Vec<String>,
    /// `shared:N`, `master:N`, `unbindable`; nothing for a private mount.
    pub propagation: Vec<String>,
    /// Type of the file system.
    pub kind: String,
    /// What was named as its source.
    pub source: String,
    /// Options of the file system.
    pub filesystem_options: Vec<String>,
}

impl Mount {
    /// Reads the lines of a mountinfo file.
    pub fn parse(text: &str) -> Vec<Self> {
        let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let line = |line: &str| {
            let (left, right) = line.split_once(" - ")?;
            let (left, right): (Vec<&str>, Vec<&str>) = (left.split(' ').collect(), right.split(' ').collect());
            Some(Self {
                root: (*left.get(3)?).to_owned(),
                at: (*left.get(4)?).to_owned(),
                options: list(left.get(5)?),
                propagation: left[6..].iter().map(|word| (*word).to_owned()).collect(),
                kind: (*right.first()?).to_owned(),
                source: (*right.get(1)?).to_owned(),
                filesystem_options: list(right.get(2)?),
            })
        };
        text.lines().filter_map(line).collect()
    }

    /// Whether it has an option.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|word| word == option) || self.filesystem_options.iter().any(|word| word == option)
    }

    /// `shared`, `slave`, `shared,slave`, `unbindable` or `private`.
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

/// The mounts that a process sees; those of a process that is gone are none.
pub fn mounts_of(pid: i32) -> Vec<Mount> {
    Mount::parse(&fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default())
}
