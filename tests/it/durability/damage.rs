//! Damaged files of a store: the service starts with every content as it was, or refuses with a text that
//! names the file. It never begins a new history in silence.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::home::Home;
use super::{assert_kept, rounds, seed};
use crate::stress::Random;

const URIS: usize = 24;

/// The files of a store that was killed, and the content of each resource.
struct Stored {
    folder: TempDir,
    contents: Vec<(String, String, Vec<u8>)>,
}

/// A change of one file, in words.
type Damage = fn(&mut Random, &Path) -> String;

/// The outcomes of several starts.
#[derive(Debug, Default)]
struct Outcomes {
    right: usize,
    refused: usize,
    /// Starts that began a new history and said so, which only an empty file may.
    told: usize,
    violations: Vec<String>,
}

impl Stored {
    /// Writes small and large bodies, and kills the service.
    async fn make() -> Stored {
        let home = Home::new("");
        let life = home.start().await;
        let mut connection = life.connect();
        let mut contents = Vec::new();
        for number in 0..URIS {
            let uri = format!("damage://resource/{number}");
            let bytes = [20, 3_000, 70_000, 300_000][number % 4];
            let text = format!("content {number}\n").repeat(bytes / 10);
            // Replaced once, so that free space of the file has old contents.
            connection.put_etag(&uri, &format!("the first {text}")).await;
            let etag = connection.put_etag(&uri, &text).await;
            contents.push((uri, etag, text.into_bytes()));
        }
        life.kill().await;
        let folder = tempfile::tempdir().unwrap();
        copy(home.data(), folder.path());
        Stored { folder, contents }
    }

    /// Damages a copy of the files each time, and starts the service on it.
    async fn damage(&self, rounds: usize, damage: Damage) -> Outcomes {
        let mut random = Random::new(seed());
        let mut outcomes = Outcomes::default();
        for _ in 0..rounds {
            let folder = tempfile::tempdir().unwrap();
            copy(self.folder.path(), folder.path());
            let mut files = Vec::new();
            find_files(folder.path(), &mut files);
            // Every second damage is one of the database.
            let file = match random.below(2) {
                0 => files.iter().find(|file| file.ends_with("tidings.redb")).unwrap(),
                _ => &files[random.below(files.len())],
            };
            let words = damage(&mut random, file);
            self.start(folder.path(), &words, &mut outcomes).await;
        }
        outcomes
    }

    async fn start(&self, data: &Path, damage: &str, outcomes: &mut Outcomes) {
        let mut home = Home::without_store("");
        home.set_data(data.to_owned());
        let life = match home.try_start().await {
            Ok(life) => life,
            Err(refusal) => {
                outcomes.refused += 1;
                if !refusal.contains("tidings.redb") && !refusal.contains(data.to_str().unwrap())
                    || refusal.contains("panicked")
                {
                    outcomes.violations.push(format!("{damage}: unclear: {refusal}"));
                }
                return;
            }
        };
        let mut connection = life.connect();
        let mut faults = Vec::new();
        for (uri, etag, body) in &self.contents {
            let answer = connection.get(uri).await.unwrap();
            if answer.head.etag() != Some(etag) || answer.body != *body {
                faults.push(format!("{uri}: {} {:?}", answer.head.status, answer.head.etag()));
            }
        }
        life.kill().await;
        match faults.first() {
            None => outcomes.right += 1,
            // An emptied store begins anew, and says so.
            Some(_) if home.log().contains("a new history begins") => outcomes.told += 1,
            Some(first) => outcomes.violations.push(format!(
                "{damage}: {} contents are not as they were: {first}; {}",
                faults.len(),
                home.log()
            )),
        }
    }
}

fn flip_a_bit(random: &mut Random, file: &Path) -> String {
    let mut bytes = fs::read(file).unwrap();
    let at = random.below(bytes.len());
    let bit = random.below(8);
    bytes[at] ^= 1 << bit;
    fs::write(file, &bytes).unwrap();
    format!("bit {bit} of byte {at} of {}", file.display())
}

fn truncate(random: &mut Random, file: &Path) -> String {
    let length = fs::metadata(file).unwrap().len() as usize;
    let kept = match random.below(4) {
        0 => 0,
        1 => random.below(length.min(5_000)),
        _ => random.below(length),
    };
    let opened = fs::File::options().write(true).open(file).unwrap();
    opened.set_len(kept as u64).unwrap();
    format!("{kept} of {length} bytes left of {}", file.display())
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copied = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &copied),
            false => {
                fs::copy(&path, &copied).unwrap();
            }
        }
    }
}

/// Finds the files that are not empty, in the order of their paths.
pub(super) fn find_files(folder: &Path, files: &mut Vec<PathBuf>) {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            find_files(&path, files);
        } else if fs::metadata(&path).unwrap().len() > 0 {
            files.push(path);
        }
    }
}

#[tokio::test]
async fn damaged_store_is_refused_or_right() {
    let stored = Stored::make().await;
    for damage in [flip_a_bit as Damage, truncate] {
        let outcomes = stored.damage(12, damage).await;
        assert_kept(&outcomes.violations);
    }
}

#[tokio::test]
#[ignore = "500 bit flips and 200 truncations"]
async fn long() {
    let stored = Stored::make().await;
    for (name, damage, count) in [
        ("bit flips", flip_a_bit as Damage, rounds(500)),
        ("truncations", truncate, rounds(500) * 2 / 5),
    ] {
        let outcomes = stored.damage(count, damage).await;
        let Outcomes {
            right,
            refused,
            told,
            violations,
        } = &outcomes;
        println!(
            "{count} {name}: {right} right, {refused} refused, {told} new histories told, {} violations",
            violations.len()
        );
        assert_kept(violations);
    }
}
