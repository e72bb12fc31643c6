//! Static tokens: files with the hashes of tokens, read again when they change.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use subtle::ConstantTimeEq;
use tracing::{error, info};

use super::principal::Principal;
use super::token_line::{TokenHash, TokenLine, hash_of, hex};
use crate::config::AuthTokenConfig;
use crate::file_watch::{self, FileStamp};
use crate::small_file;

/// The beginning of the identity of a principal with static tokens.
const ID_PREFIX: &str = "token:";
/// Most tokens of one file, so that a wrong path does not fill the memory.
const LINES_MAX: usize = 1_000;
/// Most bytes of one file.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// The time between two looks at the files: a token that is removed tells nothing more a second later.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The error of token files that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenFault(String);

/// The principals of token files. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub(crate) struct Tokens(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Also held while the table is replaced, so that the newest state of the files wins.
    files: Mutex<Vec<TokenFile>>,
    table: RwLock<Arc<Table>>,
    generation: AtomicU64,
}

/// One file as it was last read.
#[derive(Clone)]
struct TokenFile {
    name: String,
    path: PathBuf,
    roles: Vec<String>,
    stamp: Option<FileStamp>,
    lines: Vec<TokenLine>,
    /// The mistake that was reported last, so that each is reported once.
    fault: Option<TokenFault>,
}

/// A token that is known.
struct Known {
    hash: TokenHash,
    principal: Principal,
}

/// The tokens by the beginning of their hashes.
#[derive(Default)]
struct Table(HashMap<[u8; 8], Vec<Known>>);

impl Table {
    /// Makes the table. Returns also the mistakes: a token that stands twice is in it for no owner.
    fn of(files: &[TokenFile]) -> (Table, Vec<TokenFault>) {
        let mut owners: HashMap<TokenHash, (&TokenFile, TokenLine)> = HashMap::new();
        let mut twice = HashMap::new();
        for file in files {
            for line in &file.lines {
                if let Some((other, _)) = owners.insert(line.hash, (file, *line)) {
                    let text = format!(
                        "a token stands twice, in {} and in {}; nobody may use it until one line is removed: {line}",
                        other.path.display(),
                        file.path.display()
                    );
                    twice.insert(line.hash, TokenFault(text));
                }
            }
        }
        let mut table = Table::default();
        for (hash, (file, line)) in owners {
            if !twice.contains_key(&hash) {
                let principal = file.principal(&line);
                let known = Known { hash, principal };
                table.0.entry(beginning(&hash)).or_default().push(known);
            }
        }
        (table, twice.into_values().collect())
    }

    fn find(&self, hash: &TokenHash) -> Option<&Principal> {
        let known = self.0.get(&beginning(hash))?;
        // Compared as a whole, so that the time tells nothing of the part that differs.
        let mut matching = known.iter().filter(|known| known.hash.ct_eq(hash).into());
        Some(&matching.next()?.principal)
    }

    /// Returns the principals whose credential has this name.
    fn of_credential<'a>(&'a self, credential: &'a str) -> impl Iterator<Item = &'a Principal> {
        let known = unhex_beginning(credential).and_then(|beginning| self.0.get(&beginning));
        let principals = known.into_iter().flatten().map(|known| &known.principal);
        principals.filter(move |principal| principal.credential() == credential)
    }
}

fn beginning(hash: &TokenHash) -> [u8; 8] {
    std::array::from_fn(|at| hash[at])
}

/// Returns the name of a token in the audit.
pub(super) fn credential_of(hash: &TokenHash) -> String {
    format!("sha256:{}", hex(&beginning(hash)))
}

fn unhex_beginning(credential: &str) -> Option<[u8; 8]> {
    let digits = credential.strip_prefix("sha256:")?;
    Some(u64::from_str_radix(digits, 16).ok()?.to_be_bytes())
}

impl TokenFile {
    fn new(config: &AuthTokenConfig) -> TokenFile {
        TokenFile {
            name: config.name.clone(),
            path: config.file.clone(),
            roles: config.roles.clone(),
            stamp: None,
            lines: Vec::new(),
            fault: None,
        }
    }

    /// Returns true if both files make the same principals.
    fn has_same_tokens(&self, other: &TokenFile) -> bool {
        self.name == other.name && self.roles == other.roles && self.lines == other.lines
    }

    fn principal(&self, line: &TokenLine) -> Principal {
        Principal::builder(format!("{ID_PREFIX}{}", self.name))
            .roles(self.roles.clone())
            .credential(credential_of(&line.hash))
            .expires(line.not_after)
            .build()
    }

    /// Reads the file if it may have changed, or always with `force`. A file that cannot be used keeps the
    /// lines that it had. Returns true if its lines are others now.
    fn refresh(&mut self, force: bool) -> Result<bool, TokenFault> {
        let stamp = FileStamp::at(&self.path);
        if !force && stamp.is_some() && stamp == self.stamp && self.fault.is_none() {
            return Ok(false);
        }
        let read = read_lines(&self.path)?;
        self.stamp = stamp;
        let is_other = read != self.lines;
        self.lines = read;
        Ok(is_other)
    }
}

/// Reads the lines of a file.
fn read_lines(path: &Path) -> Result<Vec<TokenLine>, TokenFault> {
    let shown = path.display();
    let text = read_text(path)
        .map_err(|error| TokenFault(format!("the token file {shown} cannot be read: {error}")))?;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        match TokenLine::read(line) {
            Ok(Some(line)) => lines.push(line),
            Ok(None) => {}
            Err(remedy) => {
                let number = index + 1;
                return Err(TokenFault(format!(
                    "line {number} of the token file {shown}: {remedy}"
                )));
            }
        }
    }
    if lines.len() > LINES_MAX {
        return Err(TokenFault(format!(
            "the token file {shown} has {} tokens; remove some, {LINES_MAX} are allowed",
            lines.len()
        )));
    }
    Ok(lines)
}

fn read_text(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    // A pipe would hold up the start until it is written, and can be read once.
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    small_file::text(file, FILE_BYTES_MAX)
}

/// Returns each mistake in the files of a configuration.
pub(super) fn faults(configs: &[AuthTokenConfig]) -> Vec<TokenFault> {
    let mut faults = Vec::new();
    let mut read = Vec::new();
    for config in configs {
        let mut file = TokenFile::new(config);
        match file.refresh(true) {
            Ok(_) => read.push(file),
            Err(fault) => faults.push(fault),
        }
    }
    let (_, twice) = Table::of(&read);
    faults.extend(twice);
    faults
}

impl Tokens {
    /// Reads the files of a configuration.
    ///
    /// # Errors
    /// A file that cannot be read, a line that is none, a token that stands twice.
    pub(crate) fn new(configs: &[AuthTokenConfig]) -> Result<Tokens, TokenFault> {
        let tokens = Tokens::default();
        tokens.replace(configs)?;
        Ok(tokens)
    }

    /// Returns the principal of a token.
    pub(crate) fn of_token(&self, token: &str) -> Option<Principal> {
        self.find(&hash_of(token))
    }

    /// Replaces all principals by those of a configuration.
    ///
    /// # Errors
    /// As [`new`](Self::new); nothing was changed.
    pub(crate) fn replace(&self, configs: &[AuthTokenConfig]) -> Result<(), TokenFault> {
        let mut files = self.files();
        let mut read = Vec::with_capacity(configs.len());
        for config in configs {
            let mut file = TokenFile::new(config);
            file.refresh(true)?;
            read.push(file);
        }
        // Made before anything is replaced, so that a mistake leaves the tokens of before in use.
        let (table, faults) = Table::of(&read);
        if let Some(fault) = faults.into_iter().next() {
            return Err(fault);
        }
        let is_equal =
            files.len() == read.len() && files.iter().zip(&read).all(|(a, b)| a.has_same_tokens(b));
        *files = read;
        // A new number has the rights of every open session judged again.
        if !is_equal {
            self.set(table);
        }
        Ok(())
    }

    /// Reads the files again that may have changed, or all of them with `force`. Mistakes are logged once.
    pub(crate) fn refresh(&self, force: bool) {
        let mut files = self.files();
        let mut is_other = false;
        for file in files.iter_mut() {
            let read = file.refresh(force);
            if let Ok(true) = read {
                is_other = true;
                info!(name = %file.name, tokens = file.lines.len(), "a token file was read again");
            }
            let fault = read.err();
            if let Some(fault) = &fault
                && file.fault.as_ref() != Some(fault)
            {
                error!(error = %fault, name = %file.name, "its tokens stay as they were");
            }
            file.fault = fault;
        }
        // Without a change the number of the table stays, and nothing open is judged again.
        if !is_other {
            return;
        }
        let (table, faults) = Table::of(&files);
        for fault in faults {
            error!(error = %fault, "a token is refused");
        }
        self.set(table);
    }

    /// Looks at the files twice a second until the last clone is dropped.
    pub(crate) fn watch(&self) {
        // Not when the files rest, as for others: a line that was removed must end its token at once, and a
        // file that is half written keeps the lines of before.
        file_watch::watch(&self.0, POLL_INTERVAL, |shared| {
            Tokens(shared.clone()).refresh(false);
        });
    }

    /// Returns the principal of a token; none if it is unknown or has ended.
    pub(crate) fn find(&self, hash: &TokenHash) -> Option<Principal> {
        let table = self.table();
        let principal = table.find(hash)?;
        let has_ended = principal.has_ended(SystemTime::now());
        (!has_ended).then(|| principal.clone())
    }

    /// Returns false for a principal whose line was removed, changed to other roles, or ends earlier now.
    /// None if it is not one of these principals.
    pub(crate) fn is_current(&self, principal: &Principal) -> Option<bool> {
        if !principal.id().starts_with(ID_PREFIX) {
            return None;
        }
        let table = self.table();
        let mut known = table.of_credential(principal.credential());
        Some(known.any(|known| {
            let ends_earlier = match (known.expires(), principal.expires()) {
                // A later end does not matter: what is open ends at the time that it knows.
                (Some(now), Some(before)) => now < before,
                (Some(_), None) => true,
                (None, _) => false,
            };
            known.id() == principal.id() && known.roles() == principal.roles() && !ends_earlier
        }))
    }

    /// A number that grows when [`is_current`](Self::is_current) may answer otherwise.
    pub(crate) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    fn set(&self, table: Table) {
        let mut current = self.0.table.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(table);
        // Below the lock, so that nothing judged by the old table carries the new number.
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    fn table(&self) -> Arc<Table> {
        self.0
            .table
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn files(&self) -> MutexGuard<'_, Vec<TokenFile>> {
        self.0.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use tempfile::TempDir;

    const A: &str = "tdg_a";
    const B: &str = "tdg_b";

    struct Bench {
        folder: TempDir,
        configs: Vec<AuthTokenConfig>,
    }

    impl Bench {
        /// Makes files with these lines.
        fn new(files: &[(&str, &str)]) -> Bench {
            let mut bench = Bench {
                folder: TempDir::new().unwrap(),
                configs: Vec::new(),
            };
            for (name, text) in files {
                bench.write(name, text);
                bench.configs.push(AuthTokenConfig {
                    name: (*name).to_owned(),
                    file: bench.folder.path().join(name),
                    roles: vec![format!("role-{name}")],
                });
            }
            bench
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.folder.path().join(name), text).unwrap();
        }

        fn tokens(&self) -> Tokens {
            Tokens::new(&self.configs).unwrap()
        }
    }

    fn line(token: &str) -> String {
        format!("sha256:{}\n", hex(&hash_of(token)))
    }

    fn until(token: &str, time: &str) -> String {
        format!("sha256:{} not-after={time}\n", hex(&hash_of(token)))
    }

    #[test]
    fn token_is_that_of_its_file() {
        let bench = Bench::new(&[("a", &format!("# both\n\n{}{}", line(A), line(B))), ("b", "")]);
        let tokens = bench.tokens();
        let principal = tokens.of_token(A).unwrap();
        assert_eq!(principal.id(), "token:a");
        assert_eq!(principal.roles(), ["role-a"]);
        assert!(principal.credential().starts_with("sha256:"));
        assert_eq!(principal.credential().len(), 7 + 16);
        assert_eq!(tokens.of_token(B).unwrap().id(), "token:a");
        for unknown in ["", "tdg_c", "tdg_A", "tdg_a "] {
            assert_eq!(tokens.of_token(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn token_ends_with_its_time() {
        let file = until(A, "2020-01-01T00:00:00Z") + &until(B, "2999-01-01T00:00:00Z");
        let tokens = Bench::new(&[("a", &file)]).tokens();
        assert_eq!(tokens.of_token(A), None);
        assert!(tokens.of_token(B).unwrap().expires().is_some());
    }

    #[test]
    fn removed_line_ends_its_principal_alone() {
        let bench = Bench::new(&[("a", &(line(A) + &line(B)))]);
        let tokens = bench.tokens();
        let [a, b] = [A, B].map(|token| tokens.of_token(token).unwrap());
        let before = tokens.generation();
        assert_eq!(tokens.is_current(&a), Some(true));
        bench.write("a", &line(B));
        tokens.refresh(false);
        assert!(tokens.generation() > before);
        assert_eq!(
            (tokens.is_current(&a), tokens.is_current(&b)),
            (Some(false), Some(true))
        );
        assert_eq!(tokens.of_token(A), None);
        assert_eq!(tokens.is_current(&Principal::local()), None);
    }

    #[test]
    fn unchanged_file_keeps_the_generation() {
        let bench = Bench::new(&[("a", &line(A))]);
        let tokens = bench.tokens();
        let before = tokens.generation();
        tokens.refresh(false);
        tokens.refresh(true);
        tokens.replace(&bench.configs).unwrap();
        bench.write("a", &format!("# renamed\n{}", line(A)));
        tokens.refresh(false);
        assert_eq!(tokens.generation(), before);
    }

    #[test]
    fn earlier_end_or_other_roles_end_a_principal() {
        let mut bench = Bench::new(&[("a", &(until(A, "2999-01-01T00:00:00Z") + &line(B)))]);
        let tokens = bench.tokens();
        let [a, b] = [A, B].map(|token| tokens.of_token(token).unwrap());
        let later = until(A, "2999-02-01T00:00:00Z") + &until(B, "2999-01-01T00:00:00Z");
        bench.write("a", &later);
        tokens.refresh(false);
        assert_eq!(
            (tokens.is_current(&a), tokens.is_current(&b)),
            (Some(true), Some(false))
        );
        bench.configs[0].roles = Vec::new();
        tokens.replace(&bench.configs).unwrap();
        assert_eq!(tokens.is_current(&a), Some(false));
    }

    #[test]
    fn unusable_file_keeps_its_tokens() {
        let bench = Bench::new(&[("a", &line(A)), ("b", &line(B))]);
        let tokens = bench.tokens();
        bench.write("a", "tdg_a\n");
        bench.write("b", "");
        tokens.refresh(false);
        assert!(tokens.of_token(A).is_some());
        assert_eq!(tokens.of_token(B), None);
        let fault = tokens.files()[0].fault.clone().unwrap().to_string();
        assert!(
            fault.starts_with("line 1 of the token file ") && !fault.contains(A),
            "{fault}"
        );
        fs::remove_file(bench.folder.path().join("a")).unwrap();
        tokens.refresh(false);
        assert!(tokens.of_token(A).is_some());
        bench.write("a", &line(B));
        tokens.refresh(false);
        assert_eq!(tokens.of_token(A), None);
        assert_eq!(tokens.of_token(B).unwrap().id(), "token:a");
        assert_eq!(tokens.files()[0].fault, None);
    }

    #[test]
    fn token_of_two_files_is_a_mistake() {
        let bench = Bench::new(&[("a", &line(A)), ("b", &line(B))]);
        let tokens = bench.tokens();
        bench.write("b", &(line(A) + &line(B)));
        tokens.refresh(false);
        assert_eq!(
            tokens.of_token(A),
            None,
            "it is refused rather than given to one of them"
        );
        assert!(tokens.of_token(B).is_some());
        let fault = tokens.replace(&bench.configs).unwrap_err().to_string();
        assert!(fault.starts_with("a token stands twice, in "), "{fault}");
    }

    #[test]
    fn files_are_bounded() {
        let many: String = (0..=LINES_MAX).map(|number| line(&number.to_string())).collect();
        let bench = Bench::new(&[("a", &many)]);
        assert!(Tokens::new(&bench.configs).is_err());
        bench.write("a", &"#".repeat(FILE_BYTES_MAX as usize + 1));
        assert!(Tokens::new(&bench.configs).is_err());
        let folder = AuthTokenConfig {
            file: bench.folder.path().to_owned(),
            ..bench.configs[0].clone()
        };
        assert!(Tokens::new(&[folder]).is_err());
    }
}
