// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! `phubctl replay` as a user runs it. `phub-sim` and `phubd` must lie beside it: `cargo build --workspace --bins` puts them there.
#![forbid(unsafe_code)]

use std::process::{Command, Output};

use serde_json::Value;

fn replay(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_phubctl"))
        .arg("replay")
        .args(arguments)
        .output()
        .unwrap()
}

fn summary(arguments: &[&str]) -> Value {
    let output = replay(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_model_on_the_golden_card() {
    let summary = summary(&["--model", "dlrm", "--card", "model", "--json"]);
    assert_eq!(summary["bytes"], 4 * 2_368_897);
    assert_eq!(summary["tensors"], 16);
    assert!(summary["gradient_mb_per_s"].as_f64() > Some(0.0));
    assert!(summary["cycles_per_byte"].is_null(), "it has no clock");
}

#[test]
fn a_list_on_the_rtl() {
    let list = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&list, "# two\nlong,300000\nempty,0\nshort,1\n").unwrap();
    let file = list.path().to_str().unwrap();
    let summary = summary(&[file, "--workers", "3", "--steps", "2", "--crc", "--json"]);
    assert_eq!(
        (&summary["tensors"], &summary["steps"]),
        (&3.into(), &2.into())
    );
    // A beat is 64 bytes, and one goes into the adders in a cycle at best.
    let cycles = summary["cycles_per_byte"].as_f64().unwrap();
    assert!((1.0 / 64.0..0.05).contains(&cycles), "{cycles} cycles/byte");
}

#[test]
fn nonsense_is_an_error() {
    assert_eq!(replay(&["/no/such/list"]).status.code(), Some(1));
    assert_eq!(replay(&[]).status.code(), Some(2));
    assert_eq!(replay(&["x", "--model", "dlrm"]).status.code(), Some(2));
}
