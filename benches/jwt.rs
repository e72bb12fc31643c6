//! Row `jwt`: the cost of credentials in a request, beside the same request to a service without a border.
//!
//! The request is a read over HTTP on kept connections. The token of an issuer was checked before: its
//! signature is verified once, and the service remembers the token by its hash until it ends.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use tidings::wire::http1::HttpTarget;

use crate::Options;
use crate::guard::{self, CONFIG, Guard, OPS, OPS_RULE};
use crate::request_load::{Figures, RequestLoad};
use crate::resources::{CONNECTIONS, REQUESTS, WARM_UP, create, reads};
use crate::server_process::ListeningServer;
use crate::sockets::connect;
use crate::support::{Column, RUNS, Spread, Table};

const ISSUER: &str = "http://127.0.0.1:1";
const RESOURCE: &str = "http://127.0.0.1/mcp";
const KEYS: &str = "keys.json";

const COLUMNS: &[Column] = &[
    ("cpu_us", "server CPU µs per request", 2),
    ("more_us", "µs more than without", 2),
    ("per_second", "requests/s", 0),
    ("p50_ms", "p50 ms", 2),
    ("p99_ms", "p99 ms", 2),
];

/// The credentials of the requests.
#[derive(Clone, Copy)]
enum Credential {
    /// None, to a service without a border.
    None,
    /// A static token.
    Static,
    /// The token of an issuer.
    Jwt,
}

impl Credential {
    const ALL: [Credential; 3] = [Credential::None, Credential::Static, Credential::Jwt];

    fn label(self) -> &'static str {
        match self {
            Credential::None => "without a border",
            Credential::Static => "static token",
            Credential::Jwt => "JSON Web Token, known",
        }
    }
}

/// Measures the row; `--sessions` is the number of connections.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let connections = options.sessions.unwrap_or(CONNECTIONS);
    let mut runs: [Vec<Figures>; 3] = Default::default();
    for _ in 0..RUNS {
        for (credential, runs) in Credential::ALL.into_iter().zip(&mut runs) {
            runs.push(measure(credential, connections).context(credential.label())?);
        }
    }
    let mut table = Table::new("jwt", COLUMNS);
    for (credential, figures) in Credential::ALL.into_iter().zip(&runs) {
        let more = std::iter::zip(figures, &runs[0]).map(|(with, without)| with.cpu_us - without.cpu_us);
        let more = match credential {
            Credential::None => None,
            _ => Spread::of(more),
        };
        let over = |figure: fn(&Figures) -> f64| Spread::of(figures.iter().map(figure));
        table.add_spreads(
            format!("{}, {connections}", credential.label()),
            vec![
                over(|figures| figures.cpu_us),
                more,
                over(|figures| figures.per_second),
                over(|figures| figures.p50_ms),
                over(|figures| figures.p99_ms),
            ],
        );
    }
    Ok(table)
}

/// One repetition, with a service of its own.
fn measure(credential: Credential, connections: usize) -> anyhow::Result<Figures> {
    let (server, target) = start(credential)?;
    let mut requests = reads(&target);
    let mut opened = Vec::new();
    for _ in 0..connections {
        opened.push(connect(target.address)?);
    }
    let mut load = RequestLoad::new(opened)?;
    load.run(&mut requests, WARM_UP)?;
    load.measure(server.pid(), &mut requests, REQUESTS)
}

/// Starts a service with resources; returns it with a target whose requests carry the credential.
fn start(credential: Credential) -> anyhow::Result<(ListeningServer, HttpTarget)> {
    let folder = tempfile::tempdir().context("cannot make a folder for the server")?;
    if let Credential::None = credential {
        drop(folder);
        let server = ListeningServer::service()?;
        let target = HttpTarget::mcp(server.address);
        create(&mut connect(target.address)?, &target)?;
        return Ok((server, target));
    }
    let guard = Guard::write(folder.path(), &[OPS], OPS_RULE)?;
    let issuer = Issuer::write(folder.path(), &guard)?;
    let server = guard::start_in(folder)?;
    let target = HttpTarget::mcp(server.address);
    guard.authorize(&target, OPS)?;
    create(&mut connect(target.address)?, &target)?;
    if let Credential::Jwt = credential {
        guard::authorize(&target, &issuer.token()?);
    }
    Ok((server, target))
}

/// An issuer whose keys stand in a file.
struct Issuer {
    key: EcdsaKeyPair,
}

impl Issuer {
    /// Makes an issuer and its keys, and adds it to the configuration in `folder`.
    fn write(folder: &Path, guard: &Guard) -> anyhow::Result<Issuer> {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random);
        let document = document.map_err(|_| anyhow!("no key could be made"))?;
        let key = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random);
        let key = key.map_err(|error| anyhow!("the key cannot be used: {error}"))?;
        // An uncompressed point: the byte 4, then both coordinates.
        let point = key.public_key().as_ref();
        let [x, y] = [&point[1..33], &point[33..]].map(|half| URL_SAFE_NO_PAD.encode(half));
        let public = json!({ "kty": "EC", "crv": "P-256", "kid": "a", "use": "sig", "x": x, "y": y });
        fs::write(folder.join(KEYS), json!({ "keys": [public] }).to_string())?;
        let section =
            guard
                .text(OPS_RULE)
                .replacen("[auth]\n", &format!("[auth]\nresource = '{RESOURCE}'\n"), 1);
        let issuer = format!("[[auth.issuer]]\nurl = '{ISSUER}'\njwks = '{KEYS}'\n");
        fs::write(folder.join(CONFIG), section + &issuer)?;
        Ok(Issuer { key })
    }

    fn token(&self) -> anyhow::Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let header = json!({ "alg": "ES256", "typ": "at+jwt", "kid": "a" });
        let claims = json!({
            "iss": ISSUER, "aud": RESOURCE, "sub": "bench", "client_id": "bench", "exp": now + 3_600,
            "roles": [OPS], "scope": "read", "jti": "1",
        });
        let encode = |part: Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = self.key.sign(&SystemRandom::new(), message.as_bytes());
        let signature = signature.map_err(|_| anyhow!("the token could not be signed"))?;
        Ok(format!(
            "{message}.{}",
            URL_SAFE_NO_PAD.encode(signature.as_ref())
        ))
    }
}
