// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A card and a `phubd` of our own, in a directory that goes with them.

use crate::process::{Managed, program};
use anyhow::{Context, Result, anyhow};
use phub::admin::{Admin, CreateTenant, Stats};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

/// How long the simulated card and `phubd` may take to start.
const START_MAX: Duration = Duration::from_secs(20);
/// How long `phubd` may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Which card to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CardChoice {
    /// The Verilated RTL, in a `phub-sim` of our own.
    Sim,
    /// The golden model, in a `phub-sim` of our own.
    Model,
    /// A card somebody else runs, by the address `phubd` takes.
    Address(String),
}

impl FromStr for CardChoice {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "sim" => Self::Sim,
            "model" => Self::Model,
            address => Self::Address(address.to_owned()),
        })
    }
}

/// Running processes; dropping it ends them and removes their directory.
///
/// The order of the fields is the order in which they end: `phubd` before the card.
pub(crate) struct Hub {
    admin: RefCell<Admin>,
    daemon: RefCell<Managed>,
    card: Option<RefCell<Managed>>,
    socket: PathBuf,
    dir: tempfile::TempDir,
}

impl Hub {
    /// Starts the card (if it is ours) and `phubd`, and waits until workers can join.
    ///
    /// `trace`: where the simulated card writes its wave (FST).
    pub(crate) fn start(choice: &CardChoice, trace: Option<&Path>) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("phub-")
            .tempdir()
            .context("no temporary directory")?;
        let card_socket = dir.path().join("card.sock");
        let (card, address) = match choice {
            CardChoice::Address(address) => (None, address.clone()),
            ours => {
                let mut command = Command::new(program("phub-sim")?);
                command
                    .arg("serve")
                    .arg("--die-with-parent")
                    .arg("--socket")
                    .arg(&card_socket);
                if *ours == CardChoice::Model {
                    command.arg("--model");
                }
                if let Some(trace) = trace {
                    command.arg("--trace").arg(trace);
                }
                let mut card = Managed::start(
                    "the simulated card",
                    &mut command,
                    dir.path().join("card.log"),
                )?;
                card.wait_ready(START_MAX)?;
                (
                    Some(RefCell::new(card)),
                    format!("vfio-user:{}", card_socket.display()),
                )
            }
        };
        let socket = dir.path().join("phubd.sock");
        let mut command = Command::new(program("phubd")?);
        command
            .args(["--die-with-parent", "--card", &address, "--socket"])
            .arg(&socket);
        let mut daemon = Managed::start("phubd", &mut command, dir.path().join("phubd.log"))?;
        daemon.wait_ready(START_MAX)?;
        let admin = Admin::connect(&socket, ANSWER_MAX).map_err(explain)?;
        Ok(Self {
            admin: RefCell::new(admin),
            daemon: RefCell::new(daemon),
            card,
            socket,
            dir,
        })
    }

    /// Where workers join.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// A log file beside the others.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.log"))
    }

    /// Fails if the card or `phubd` has ended.
    pub(crate) fn check_alive(&self) -> Result<()> {
        if let Some(card) = &self.card {
            card.borrow_mut().check_alive()?;
        }
        self.daemon.borrow_mut().check_alive()
    }

    /// One line about the card.
    pub(crate) fn describe(&self) -> Result<String> {
        let info = self.admin.borrow_mut().info().map_err(explain)?;
        let get = |key: &str| {
            info.identity
                .get(key)
                .map_or("?".into(), ToString::to_string)
        };
        Ok(format!(
            "{} lanes, {} slots of {} bytes, {} queue pairs ({})",
            get("lanes"),
            get("slots"),
            get("segment_bytes"),
            get("queues"),
            info.card
        ))
    }

    /// Bytes the card's adders take in a cycle.
    pub(crate) fn beat_bytes(&self) -> Result<u64> {
        let info = self.admin.borrow_mut().info().map_err(explain)?;
        Ok(info
            .identity
            .get("lanes")
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(0)
            * 4)
    }

    /// Makes a tenant with a fresh token.
    pub(crate) fn create_tenant(&self, name: &str, world: usize) -> Result<u64> {
        let token = rand::random();
        let tenant = CreateTenant {
            name: name.into(),
            world: u32::try_from(world)?,
            token,
            slots_log2: None,
        };
        self.admin
            .borrow_mut()
            .create_tenant(tenant)
            .map_err(explain)?;
        Ok(token)
    }

    /// Performance counters of the card, since it was enabled.
    pub(crate) fn perf(&self) -> Result<BTreeMap<String, u64>> {
        let Stats { perf, .. } = self.admin.borrow_mut().stats().map_err(explain)?;
        Ok(perf)
    }

    /// Cycles the card was busy for each beat its adders took, since it was enabled; none without a clock or a beat.
    pub(crate) fn cycles_per_beat(&self) -> Result<Option<f64>> {
        let perf = self.perf()?;
        let get = |key: &str| perf.get(key).copied().unwrap_or(0);
        let (busy, beats) = (get("busy"), get("beats_in"));
        Ok((busy > 0 && beats > 0).then(|| busy as f64 / beats as f64))
    }

    /// The counters of a tenant.
    pub(crate) fn counters(&self, tenant: &str) -> Result<BTreeMap<String, u64>> {
        let mut stats = self.admin.borrow_mut().stats().map_err(explain)?;
        stats
            .tenants
            .remove(tenant)
            .with_context(|| format!("phubd does not know tenant {tenant}"))
    }

    /// The last lines `phubd` logged.
    pub(crate) fn log_tail(&self) -> String {
        self.daemon.borrow().log_tail()
    }
}

/// An error of the host library with its remedy.
pub(crate) fn explain(error: phub::Error) -> anyhow::Error {
    let remedy = error.remedy();
    anyhow!("{error}; {remedy}")
}
