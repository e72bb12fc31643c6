//! The JSON Web Tokens of callers and the key sets of issuers: no token passes that the rules forbid.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| tidings::auth::read_token(text));
