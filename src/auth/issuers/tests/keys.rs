//! Signatures of each algorithm, and keys that come and go.

use super::*;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{
    ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaSigningAlgorithm, Ed25519KeyPair, RSA_PKCS1_SHA256,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RsaEncoding, RsaKeyPair,
};
use std::path::PathBuf;
use tempfile::TempDir;

const ISSUER: &str = "https://as.example";

/// A key of RSA for this test alone, since ring makes none.
const RSA_KEY: &str = "\
    MIIEvgIBADANBgkqhkiG9w0BAQEFAASCBKgwggSkAgEAAoIBAQCzLZraYowPNF5HSgf1aiWAUuCmsiNIsSYKnwVNdkeDnzurem18\
    dbRf9jIZGJuyy+XncMhfU4YihdZwyuA0uFHVTyWV/ous3C0TZ2zOuC11QcfZz8XlgZjV9qvtPyaENvS6S4eEYorTSaJK9S09w4NA\
    aHHG41zTHMb0srZLB6fJOJxiXL4U71jQoi8DMCwSQJ1rcfqMEeU7jJ5oBLJd/Ai1wHeR3YoB+t5PE71/ZSCFlSe7LbPbnJDsvC3Q\
    uE75kon1OSlUFGAu6UxxYlNXffFG+qkzvWH9McLPD8dU80XYP4G/i8Ep+/sGil30NfivkPtm/9SjgdjkgV59JvzUj4E7AgMBAAEC\
    ggEAF7eqrsuqpHyXGjKneQnS6viNeiNMXlvsoC1Kg2Vrs/WI7XroMThXZvhsyzuhqHoq9YbNTyj8MWer6gRAx1m6o1S1sfQewwPm\
    B5KCKZ7hjYrmjGNfW7Da7T+YpG/ehlPL8zj6OEDfBXbSv79SfMF7hzQME3qXF+7QOyXI0Yey4wSdaWbeGHSB5dZ10Rg5ThAoeLhk\
    XLWoKkaMHH2uoUhwoaJoodQVfn2iPlwXpw+j8FXj1+6OWGqMWtqKhPuIqZGGwVEoEhGpOA7SF3U5H5dBWFfUGb3IsHfLDvm/58F2\
    x3Vum250x+ZY0E61QuT6w0PDFWixEwAzDivfiV8LPWaWqQKBgQDqOQR82Ybyz+fkXiWZsgAwZNkkN8RoL31MJI0ZvBEt3LKwtw8p\
    zsv2h3aQCKsnqFf4ayMsIDdtcKaUX3hF223TQySAd4tDey5NcWuv//6Cyay1m4HOU6MqLoN3tdLnRbrlaU4BIyxkW13Cm+cKmMgu\
    VyWs3Daces+g0tYJYR6OJQKBgQDD1mnE5YQCbPXLStPoRXjsAuH9hAUamnvoNAKOPvfP9Nnj4rkmBMKU6mV9382gN3TV5wDBEihp\
    4kfnL54+BryBBXqTdcKHvlLKpAe8m6AZ5VoYuyWFIsy6mZ5vCPBPrAm6jyoPhCp88jCLXLpMP5xgyMxrP2RRYjNqtIoBZWZD3wKB\
    gHAuYOzfTtgrJdjmEsI7VAXZt3q2TxbLcAqxEve5cMzzgI5NDzEp/9yS4wF3dWpoIcI0pkLzJzj+lHpKA5QJ1d8ysF/rYcMvU2z6\
    HubMCH1h1Jui4JgOzP5eCs+iQWJNrodEWX0H+LIUZKLaAt27cV1olf3l9y4ZUCqp8KPLZVQVAoGBAIfytXQI/E4Ow8Z/SIHKkHoO\
    OkGaP0zLh06XpFqI3dEQIZ4wCuWYkld8LD5oeb9KICJJfV2KNGHkwpN7m/dlB8DtQ71QF13SQnkHy5Mj2c2ASL44VICKuuKit7hO\
    1TwJqqtGrSUeU7xvCEIGehFqay1I15dv5z0T1auybscvVAGzAoGBAL0eif4T5Mh5/a/rpmrxeRR3T+mWmNkRaCcedJd3SIuXWLTy\
    lNSTmkob9rkz/4fArqKHYjvryDt5mSBeQz7Cg37mgipDwgPquiy3PjSro3lpDDCccsxCXyxchUb5xlGqZJu+HO2vP/2Z88ZOkig9\
    St7W2icJUCGCeMwXM0HuBQZ+";

/// The private half of a key, with the way in which it signs.
enum Signer {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

impl Signer {
    fn rsa() -> Signer {
        let key = STANDARD.decode(RSA_KEY).unwrap();
        Signer::Rsa(RsaKeyPair::from_pkcs8(&key).unwrap())
    }

    fn ec(algorithm: &'static EcdsaSigningAlgorithm) -> Signer {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Signer::Ec(EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap())
    }

    fn ed() -> Signer {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Signer::Ed(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
    }

    /// The public half.
    fn jwk(&self, kid: &str) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Signer::Rsa(key) => {
                let public = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(key.public_key());
                json!({ "kty": "RSA", "kid": kid, "n": text(&public.n), "e": text(&public.e) })
            }
            Signer::Ec(key) => {
                let point = &key.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let curve = match x.len() {
                    32 => "P-256",
                    _ => "P-384",
                };
                json!({ "kty": "EC", "crv": curve, "kid": kid, "x": text(x), "y": text(y) })
            }
            Signer::Ed(key) => {
                let x = text(key.public_key().as_ref());
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x })
            }
        }
    }

    /// Signs a token that names this algorithm and key.
    fn sign(&self, algorithm: &str, kid: &str) -> String {
        let header = json!({ "alg": algorithm, "typ": "at+jwt", "kid": kid });
        let claims = json!({ "iss": ISSUER, "aud": RESOURCE, "sub": "u1", "exp": now() + 600 });
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let message = format!("{header}.{claims}");
        let random = SystemRandom::new();
        let signature = match self {
            Signer::Rsa(key) => {
                let padding: &'static dyn RsaEncoding = match algorithm {
                    "RS512" => &RSA_PKCS1_SHA512,
                    "PS256" => &RSA_PSS_SHA256,
                    "PS384" => &RSA_PSS_SHA384,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(padding, &random, message.as_bytes(), &mut signature)
                    .unwrap();
                signature
            }
            Signer::Ec(key) => key.sign(&random, message.as_bytes()).unwrap().as_ref().to_vec(),
            Signer::Ed(key) => key.sign(message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// A file of keys, which its issuer may replace.
struct KeyFile(TempDir);

impl KeyFile {
    fn with(keys: &[Value]) -> KeyFile {
        let file = KeyFile(TempDir::new().unwrap());
        file.write(keys);
        file
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("keys.json")
    }

    fn write(&self, keys: &[Value]) {
        std::fs::write(self.path(), json!({ "keys": keys }).to_string()).unwrap();
    }

    fn issuers(&self, algorithms: &[&str]) -> Issuers {
        let config = AuthConfig {
            resource: Some(RESOURCE.to_owned()),
            issuer: vec![IssuerConfig {
                url: ISSUER.into(),
                jwks: self.path().display().to_string(),
                algorithms: algorithms.iter().map(|name| (*name).to_owned()).collect(),
                ..IssuerConfig::default()
            }],
            ..AuthConfig::default()
        };
        Issuers::new(&config, &Arc::default()).unwrap()
    }
}

/// Waits for a condition, with a deadline of the real clock: that of the test stands still.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(std::time::Instant::now() < deadline, "{what}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn each_algorithm_is_verified_if_it_is_allowed() {
    let signers = [
        ("rsa", Signer::rsa(), vec!["RS256", "RS512", "PS256", "PS384"]),
        (
            "p256",
            Signer::ec(&ECDSA_P256_SHA256_FIXED_SIGNING),
            vec!["ES256"],
        ),
        (
            "p384",
            Signer::ec(&ECDSA_P384_SHA384_FIXED_SIGNING),
            vec!["ES384"],
        ),
        ("ed", Signer::ed(), vec!["EdDSA"]),
    ];
    let keys: Vec<Value> = signers.iter().map(|(kid, signer, _)| signer.jwk(kid)).collect();
    let file = KeyFile::with(&keys);
    let all: Vec<&str> = signers.iter().flat_map(|(_, _, names)| names.clone()).collect();
    let allowing_all = file.issuers(&all);
    for (kid, signer, names) in &signers {
        for name in names {
            let token = signer.sign(name, kid);
            assert!(check(&allowing_all, &token).await.is_ok(), "{name}");
            assert!(check(&file.issuers(&[*name]), &token).await.is_ok(), "{name}");
            // The other algorithms alone are allowed.
            let others: Vec<&str> = all.iter().filter(|other| *other != name).copied().collect();
            let refused = check(&file.issuers(&others), &token).await;
            assert_eq!(refused, Err(Unauthenticated::Invalid), "{name}");
            // Another bit of the signature.
            let (message, signature) = token.rsplit_once('.').unwrap();
            let mut signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
            signature[3] ^= 1;
            let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature));
            assert_eq!(
                check(&allowing_all, &token).await,
                Err(Unauthenticated::Invalid),
                "{name}"
            );
        }
    }
    // A signature of one algorithm under the name of another one, and a key under the name of another.
    for (signer, signed, claimed, kid) in [
        (&signers[0].1, "RS256", "PS256", "rsa"),
        (&signers[0].1, "PS256", "RS256", "rsa"),
        (&signers[0].1, "RS512", "RS256", "rsa"),
        (&signers[1].1, "ES256", "EdDSA", "ed"),
        (&signers[3].1, "EdDSA", "ES256", "p256"),
        (&signers[0].1, "RS256", "HS256", "rsa"),
    ] {
        let signature = signer.sign(signed, kid);
        let (_, signature) = signature.rsplit_once('.').unwrap();
        let token = signer.sign(claimed, kid);
        let (message, _) = token.rsplit_once('.').unwrap();
        let refused = check(&allowing_all, &format!("{message}.{signature}")).await;
        assert_eq!(refused, Err(Unauthenticated::Invalid), "{signed} as {claimed}");
    }
}

#[tokio::test]
async fn key_is_used_for_its_own_purpose_alone() {
    let signer = Signer::rsa();
    for (member, value, is_good) in [
        ("use", json!("sig"), true),
        ("use", json!("enc"), false),
        ("key_ops", json!(["verify"]), true),
        ("key_ops", json!(["encrypt"]), false),
        ("alg", json!("RS256"), true),
        ("alg", json!("PS256"), false),
        ("alg", json!("RSA-OAEP"), false),
    ] {
        let file = KeyFile::with(&[
            with(&signer.jwk("a"), member, value.clone()),
            Signer::ed().jwk("b"),
        ]);
        let checked = check(&file.issuers(&["RS256", "EdDSA"]), &signer.sign("RS256", "a")).await;
        assert_eq!(checked.is_ok(), is_good, "{member} {value}");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_come_and_go_while_the_service_runs() {
    let [old, new, newer] = [(); 3].map(|()| Signer::ec(&ECDSA_P256_SHA256_FIXED_SIGNING));
    let file = KeyFile::with(&[old.jwk("old")]);
    let issuers = file.issuers(&["ES256"]);
    let old_token = old.sign("ES256", "old");
    let new_token = new.sign("ES256", "new");
    until("the first keys", || !issuers.issuers[0].keys.current().is_empty()).await;
    assert!(check(&issuers, &old_token).await.is_ok());
    file.write(&[old.jwk("old"), new.jwk("new")]);
    assert!(check(&issuers, &new_token).await.is_ok());
    file.write(&[old.jwk("old"), new.jwk("new"), newer.jwk("newer")]);
    // The keys were fetched for a token a moment ago.
    let newer_token = newer.sign("ES256", "newer");
    assert_eq!(check(&issuers, &newer_token).await, Err(Unauthenticated::Invalid));
    tokio::time::advance(Duration::from_secs(31)).await;
    assert!(check(&issuers, &newer_token).await.is_ok());
    assert!(check(&issuers, &old_token).await.is_ok());

    // The old key is withdrawn, and with it its tokens that are remembered.
    file.write(&[new.jwk("new")]);
    assert!(
        issuers
            .remembered(&hash_of(&old_token), SystemTime::now())
            .is_some()
    );
    // The time at which every set of keys has aged.
    tokio::time::advance(Duration::from_secs(301)).await;
    until("the end of the old key", || {
        issuers
            .remembered(&hash_of(&old_token), SystemTime::now())
            .is_none()
    })
    .await;
    assert_eq!(check(&issuers, &old_token).await, Err(Unauthenticated::Invalid));
    assert!(check(&issuers, &new_token).await.is_ok());

    // A file that is no key set keeps those that were read.
    std::fs::write(file.path(), "{}").unwrap();
    tokio::time::advance(Duration::from_secs(31)).await;
    assert_eq!(check(&issuers, &old_token).await, Err(Unauthenticated::Invalid));
    assert!(check(&issuers, &new_token).await.is_ok());
}
