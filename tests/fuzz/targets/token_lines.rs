//! The files of tokens: a line that is read is the line that is printed.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| tidings::auth::read_token_lines(text));
