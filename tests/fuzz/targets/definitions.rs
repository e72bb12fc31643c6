//! The definitions of a folder: prompts with front matter, sidecars of tools, documents of `register`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| tidings::source::workspace::parse_definitions(text));
