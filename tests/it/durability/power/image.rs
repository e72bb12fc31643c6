//! A disk that remembers which of its writes were synced. When the power fails, each sector of a write that
//! was not may be there or not, in any order; so may new lengths, and the last changes of the names in a
//! folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::stress::Random;

/// The bytes that a disk writes as a whole.
const SECTOR: usize = 512;
/// The bytes of a record before its path: kind, length of the path, length of the data, offset.
const HEAD_BYTES: usize = 17;

/// A change of a disk, or an acknowledgement that was received after those before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Operation {
    Create(PathBuf),
    Write {
        path: PathBuf,
        offset: usize,
        data: Vec<u8>,
    },
    SetLength(PathBuf, usize),
    Sync(PathBuf),
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Link {
        from: PathBuf,
        to: PathBuf,
    },
    Remove(PathBuf),
    MakeFolder(PathBuf),
    /// The number of the acknowledgement.
    Mark(usize),
}

/// Returns the record of an acknowledgement, as the log has them.
pub(super) fn mark(number: usize) -> Vec<u8> {
    let mut record = vec![b'A'];
    record.extend_from_slice(&[0; 8]);
    record.extend_from_slice(&(number as u64).to_ne_bytes());
    record
}

/// Reads a log; the header of the layer's source describes its format.
pub(super) fn read(log: &Path) -> Vec<Operation> {
    let bytes = fs::read(log).unwrap();
    let mut rest = bytes.as_slice();
    let mut operations = Vec::new();
    while !rest.is_empty() {
        let (head, after) = rest.split_at(HEAD_BYTES);
        let path_length = u32::from_ne_bytes(head[1..5].try_into().unwrap()) as usize;
        let data_length = u32::from_ne_bytes(head[5..9].try_into().unwrap()) as usize;
        let number = u64::from_ne_bytes(head[9..17].try_into().unwrap()) as usize;
        let (path, after) = after.split_at(path_length);
        let (data, after) = after.split_at(data_length);
        rest = after;
        let path = path_of(path);
        operations.push(match head[0] {
            b'C' => Operation::Create(path),
            b'W' => Operation::Write {
                path,
                offset: number,
                data: data.to_vec(),
            },
            b'T' => Operation::SetLength(path, number),
            b'S' => Operation::Sync(path),
            b'R' => Operation::Rename {
                from: path,
                to: path_of(data),
            },
            b'L' => Operation::Link {
                from: path,
                to: path_of(data),
            },
            b'U' => Operation::Remove(path),
            b'M' => Operation::MakeFolder(path),
            b'A' => Operation::Mark(number),
            other => panic!("an unknown record {other}"),
        });
    }
    operations
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::str::from_utf8(bytes).unwrap())
}

/// A change of the bytes of a file.
#[derive(Debug, Clone)]
enum Change {
    Bytes(usize, Vec<u8>),
    Length(usize),
}

#[derive(Debug, Default)]
struct Node {
    synced: Vec<u8>,
    /// Changes since the last sync.
    pending: Vec<Change>,
}

impl Node {
    /// Makes every change durable.
    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            change.apply(&mut self.synced);
        }
    }

    /// Returns the bytes that may be left when the power fails: some of the changes, by sector.
    fn left(&self, random: &mut Random) -> Vec<u8> {
        let mut left = self.synced.clone();
        // Of some disks nothing unsynced is left, of some all, of most a part.
        let eighths = [0, 1, 4, 7, 8][random.below(5)];
        for change in &self.pending {
            match change {
                Change::Length(_) => {
                    if random.below(8) < eighths {
                        change.apply(&mut left);
                    }
                }
                Change::Bytes(offset, data) => {
                    let mut at = 0;
                    while at < data.len() {
                        let length = (SECTOR - (offset + at) % SECTOR).min(data.len() - at);
                        if random.below(8) < eighths {
                            let sector = Change::Bytes(offset + at, data[at..at + length].to_vec());
                            sector.apply(&mut left);
                        }
                        at += length;
                    }
                }
            }
        }
        left
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Length(length) => bytes.resize(*length, 0),
            Change::Bytes(offset, data) => {
                let end = offset + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*offset..end].copy_from_slice(data);
            }
        }
    }
}

/// A change of the names in a folder. A rename is one change.
#[derive(Debug, Clone)]
struct Naming {
    removed: Option<PathBuf>,
    added: Option<(PathBuf, Target)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    File(usize),
    Folder,
}

/// The names of a disk.
type Names = BTreeMap<PathBuf, Target>;

/// A disk with one folder and those below it.
#[derive(Debug)]
pub(super) struct Disk {
    root: PathBuf,
    nodes: Vec<Node>,
    /// The names that a program sees.
    names: Names,
    /// The names that are durable.
    synced_names: Names,
    /// Changes of names since the last sync of their folder.
    pending: BTreeMap<PathBuf, Vec<Naming>>,
}

impl Disk {
    pub(super) fn new(root: &Path) -> Disk {
        Disk {
            root: root.to_owned(),
            nodes: Vec::new(),
            names: Names::new(),
            synced_names: Names::new(),
            pending: BTreeMap::new(),
        }
    }

    pub(super) fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Create(path) => {
                self.nodes.push(Node::default());
                let target = Target::File(self.nodes.len() - 1);
                self.name(path, None, Some(target));
            }
            Operation::MakeFolder(path) => self.name(path, None, Some(Target::Folder)),
            Operation::Write { path, offset, data } => {
                let change = Change::Bytes(*offset, data.clone());
                self.node(path).pending.push(change);
            }
            Operation::SetLength(path, length) => self.node(path).pending.push(Change::Length(*length)),
            Operation::Sync(path) => match self.names.get(path) {
                Some(Target::File(number)) => self.nodes[*number].sync(),
                _ => self.sync_folder(path),
            },
            Operation::Rename { from, to } => {
                let target = self.names.remove(from);
                self.name(to, Some(from), target);
            }
            Operation::Link { from, to } => {
                let target = self.names.get(from).copied();
                self.name(to, None, target);
            }
            Operation::Remove(path) => {
                self.names.remove(path);
                self.name(path, Some(path), None);
            }
            Operation::Mark(_) => {}
        }
    }

    /// Changes the names in the folder of `path`.
    fn name(&mut self, path: &Path, removed: Option<&Path>, target: Option<Target>) {
        if let Some(target) = target {
            self.names.insert(path.to_owned(), target);
        }
        let folder = path.parent().unwrap().to_owned();
        self.pending.entry(folder).or_default().push(Naming {
            removed: removed.map(Path::to_owned),
            added: target.map(|target| (path.to_owned(), target)),
        });
    }

    fn node(&mut self, path: &Path) -> &mut Node {
        match self.names.get(path) {
            Some(Target::File(number)) => &mut self.nodes[*number],
            other => panic!("a write to {}, which is {other:?}", path.display()),
        }
    }

    fn sync_folder(&mut self, folder: &Path) {
        for naming in self.pending.remove(folder).unwrap_or_default() {
            naming.apply(&mut self.synced_names);
        }
    }

    /// Writes the files that may be left when the power fails now.
    pub(super) fn write_image(&self, to: &Path, random: &mut Random) {
        let mut names = self.synced_names.clone();
        for namings in self.pending.values() {
            // A journal of a file system keeps the order of names.
            let kept = match random.below(3) {
                0 => 0,
                1 => namings.len(),
                _ => random.below(namings.len() + 1),
            };
            for naming in &namings[..kept] {
                naming.apply(&mut names);
            }
        }
        for (path, target) in &names {
            let place = to.join(path.strip_prefix(&self.root).unwrap());
            match target {
                Target::Folder => fs::create_dir_all(&place).unwrap(),
                // A file in a folder whose name was lost is lost too.
                Target::File(number) => {
                    if place.parent().unwrap().exists() {
                        fs::write(&place, self.nodes[*number].left(random)).unwrap();
                    }
                }
            }
        }
    }
}

impl Naming {
    fn apply(&self, names: &mut Names) {
        if let Some(removed) = &self.removed {
            names.remove(removed);
        }
        if let Some((path, target)) = &self.added {
            names.insert(path.clone(), *target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "/disk";

    fn path(name: &str) -> PathBuf {
        Path::new(ROOT).join(name)
    }

    fn write(name: &str, offset: usize, data: &[u8]) -> Operation {
        Operation::Write {
            path: path(name),
            offset,
            data: data.to_vec(),
        }
    }

    /// Returns every content that a file is left with, in many losses of power.
    fn left(operations: &[Operation], name: &str) -> Vec<Option<Vec<u8>>> {
        let mut disk = Disk::new(Path::new(ROOT));
        for operation in operations {
            disk.apply(operation);
        }
        let mut found = Vec::new();
        let mut random = Random::new(1);
        for _ in 0..200 {
            let folder = tempfile::tempdir().unwrap();
            disk.write_image(folder.path(), &mut random);
            found.push(fs::read(folder.path().join(name)).ok());
        }
        found.sort();
        found.dedup();
        found
    }

    #[test]
    fn synced_bytes_and_names_are_left() {
        let operations = [
            Operation::Create(path("a")),
            write("a", 0, b"kept"),
            Operation::Sync(path("a")),
            Operation::Sync(PathBuf::from(ROOT)),
        ];
        assert_eq!(left(&operations, "a"), [Some(b"kept".to_vec())]);
    }

    #[test]
    fn unsynced_sectors_are_lost_one_by_one() {
        let operations = [
            Operation::Create(path("a")),
            Operation::SetLength(path("a"), 3 * SECTOR),
            Operation::Sync(path("a")),
            Operation::Sync(PathBuf::from(ROOT)),
            write("a", 0, &[1; 3 * SECTOR]),
        ];
        // Each of the three sectors is old or new.
        assert_eq!(left(&operations, "a").len(), 8);
    }

    #[test]
    fn unsynced_names_are_lost() {
        let operations = [
            Operation::Create(path("new")),
            write("new", 0, b"x"),
            Operation::Sync(path("new")),
            Operation::Rename {
                from: path("new"),
                to: path("a"),
            },
        ];
        assert_eq!(left(&operations, "a"), [None, Some(b"x".to_vec())]);
        assert_eq!(left(&operations, "new"), [None, Some(b"x".to_vec())]);
    }
}
