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
            println!("{}", serde_json::to_string(&info)?);
            return Ok(ExitCode::SUCCESS);
        }
        println!("{:<20} {}", "hub", info.server);
        println!("{:<20} {}", "card", info.card);
        println!("{:<20} {} s", "up", info.uptime_s);
        println!(
            "{:<20} {} in {} tenants",
            "workers", info.workers, info.tenants
        );
        println!("{:<20} {} MiB a worker", "arena", info.arena_max >> 20);
        println!(
            "{:<20} {}",
            "tenants on demand",
            if info.auto_create { "yes" } else { "no" }
        );
        println!("\nthe card says");
        for (name, value) in &info.identity {
            println!("  {name:<18} {value}");
        }
        // A card without ports has no link to be up or down.
        if info
            .identity
            .get("ports")
            .and_then(serde_json::Value::as_u64)
            == Some(0)
        {
            println!("  {:<18} none: workers on this host only", "Ethernet links");
        }
        Ok(ExitCode::SUCCESS)
    }
}
