//! JSON-RPC over stdio: all lines that a client writes before it closes its output.

#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use support::{bus, in_time};
use tidings::mcp::{McpOptions, serve_stdio};

fuzz_target!(|data: &[u8]| {
    let input = Cursor::new(data.to_vec());
    // Both outcomes are allowed, a panic is not.
    let _served = in_time(serve_stdio(
        bus(),
        McpOptions::default(),
        input,
        tokio::io::sink(),
    ));
});
