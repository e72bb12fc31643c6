//! The configuration file: what loads is printed as a file that loads to the same configuration.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tidings::config::{Config, ConfigError, Overrides};

/// A file in memory, one for each process.
static FILE: LazyLock<std::path::PathBuf> =
    LazyLock::new(|| format!("/dev/shm/tidings-fuzz-{}.toml", std::process::id()).into());

fn load(text: &str) -> Result<Config, ConfigError> {
    std::fs::write(FILE.as_path(), text).expect("room in memory");
    Config::load(Some(FILE.as_path()), std::iter::empty(), &Overrides::default())
}

fuzz_target!(|text: &str| {
    match load(text) {
        Ok(config) => {
            let again = load(&config.to_toml()).expect("the printed configuration loads");
            assert_eq!(again, config);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
