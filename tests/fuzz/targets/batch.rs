//! A batch of changes: NDJSON in a request to the HTTP API, which answers each line.

#![no_main]

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use libfuzzer_sys::fuzz_target;
use support::{bus, in_time};
use tidings::http::Access;
use tidings::http::api::Api;

static API: LazyLock<Api> =
    LazyLock::new(|| Api::new(bus(), Access::default(), Arc::new(AtomicBool::new(true))));

fuzz_target!(|data: &[u8]| {
    let request = Request::post("/v1/resources")
        .header("host", "localhost")
        .header("content-type", "application/x-ndjson")
        .body(Full::new(Bytes::copy_from_slice(data)))
        .expect("a request");
    // Made before the runtime is entered, since the bus is.
    let api = &*API;
    in_time(async {
        let answer = api.handle(request).await;
        let status = answer.status();
        let body = answer
            .into_body()
            .collect()
            .await
            .expect("a whole body")
            .to_bytes();
        if status.is_success() {
            for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                serde_json::from_slice::<serde_json::Value>(line).expect("each line is JSON");
            }
        }
    });
});
