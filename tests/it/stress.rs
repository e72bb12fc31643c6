//! After a storm everybody knows the newest of everything, and nothing is left behind; a service that breaks this is
//! found out.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::Value;
use tidings::bench::{BenchError, StressSettings, stress};

use crate::mcp::server::binary;

/// Storms end by themselves; this is for one that does not.
const PATIENCE: Duration = Duration::from_secs(240);

fn short() -> StressSettings {
    StressSettings {
        seed: 1,
        time_limit: Duration::from_secs(1),
        clients: 40,
        resources: 16,
        steps: 600,
    }
}

#[tokio::test]
async fn a_storm_leaves_everybody_with_the_newest_and_nothing_behind() {
    let mut command = tokio::process::Command::new(binary());
    command.env_clear().kill_on_drop(true);
    command.args([
        "bench",
        "stress",
        "--seed",
        "7",
        "--time-limit",
        "1s",
        "--clients",
        "40",
    ]);
    command.args(["--resources", "16", "--steps", "600", "--json"]);
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output.expect("a storm ends").unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let verdict: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&verdict["seed"], &verdict["faults"]),
        (&Value::from(7), &Value::from([""; 0]))
    );
    assert!(verdict["rounds"].as_u64().unwrap() >= 2, "{verdict}");
    for what in ["connects", "writes", "notices", "received"] {
        assert!(verdict[what].as_u64().unwrap() > 0, "{what}: {verdict}");
    }
}

/// Here the service is told to end every session after a second, which no client of a storm asked for.
#[tokio::test]
async fn a_service_that_ends_sessions_by_itself_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("tidings");
    let script = format!(
        "#!/bin/sh\nTIDINGS_SESSION__AGE_MAX=1s exec {} \"$@\"\n",
        binary()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let settings = StressSettings {
        steps: 3_000,
        ..short()
    };
    let stopped = AtomicBool::new(false);
    let run = stress(&program, &settings, &stopped);
    let verdict = tokio::time::timeout(PATIENCE, run)
        .await
        .expect("a storm ends")
        .unwrap();
    assert!(
        verdict
            .faults
            .iter()
            .any(|fault| fault.contains("the server ended the stream") || fault.contains("session ended")),
        "{:?}",
        verdict.faults
    );
}

#[tokio::test]
async fn a_program_that_does_not_serve_and_settings_without_sense_are_refused() {
    let run = stress("/bin/false".as_ref(), &short(), &AtomicBool::new(false)).await;
    assert!(matches!(run, Err(BenchError::Unreachable(_))), "{run:?}");
    let nobody = StressSettings {
        clients: 0,
        ..short()
    };
    let run = stress("/bin/false".as_ref(), &nobody, &AtomicBool::new(false)).await;
    assert!(matches!(run, Err(BenchError::Arguments(_))), "{run:?}");
}
