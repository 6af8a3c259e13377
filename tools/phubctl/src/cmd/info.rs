// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! `phubctl info`: what a hub and its card are.

use super::Daemon;
use crate::hub::explain;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

/// Show the identity and capabilities of a hub's card.
#[derive(Args)]
pub(crate) struct Info {
    #[command(flatten)]
    daemon: Daemon,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Info {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let info = self.daemon.connect()?.info().map_err(explain)?;
        if self.json {
            outln!("{}", serde_json::to_string(&info)?);
            return Ok(ExitCode::SUCCESS);
        }
        outln!("{:<20} {}", "hub", info.server);
        outln!("{:<20} {}", "card", info.card);
        outln!("{:<20} {} s", "up", info.uptime_s);
        outln!(
            "{:<20} {} in {} tenants",
            "workers",
            info.workers,
            info.tenants
        );
        outln!("{:<20} {} MiB a worker", "arena", info.arena_max >> 20);
        outln!(
            "{:<20} {}",
            "tenants on demand",
            if info.auto_create { "yes" } else { "no" }
        );
        outln!("\nthe card says");
        for (name, value) in &info.identity {
            outln!("  {name:<18} {value}");
        }
        // A card without ports has no link to be up or down.
        if info
            .identity
            .get("ports")
            .and_then(serde_json::Value::as_u64)
            == Some(0)
        {
            outln!("  {:<18} none: workers on this host only", "Ethernet links");
        }
        Ok(ExitCode::SUCCESS)
    }
}
