// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! `phubctl stats`: counters of a hub, its card and its tenants; `--slots` shows what is waited for.

use super::Daemon;
use crate::hub::explain;
use anyhow::Result;
use clap::Args;
use phub::admin::Admin;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Show counters, and with --slots every open slot and who is waited for.
#[derive(Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    daemon: Daemon,
    /// Only this tenant.
    #[arg(long)]
    tenant: Option<String>,
    /// Show the open slots instead.
    #[arg(long)]
    slots: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut admin = self.daemon.connect()?;
        if self.slots {
            self.slots(&mut admin)?
        } else {
            self.counters(&mut admin)?
        }
        Ok(ExitCode::SUCCESS)
    }

    fn counters(&self, admin: &mut Admin) -> Result<()> {
        let mut stats = admin.stats().map_err(explain)?;
        if let Some(only) = &self.tenant {
            anyhow::ensure!(
                stats.tenants.contains_key(only),
                "there is no tenant {only}; see phubctl tenant list"
            );
            stats.tenants.retain(|name, _| name == only);
        }
        if self.json {
            outln!("{}", serde_json::to_string(&stats)?);
            return Ok(());
        }
        print("card", &stats.perf)?;
        if let serde_json::Value::Object(hub) = serde_json::to_value(stats.hub)? {
            let hub = hub
                .into_iter()
                .filter_map(|(name, value)| Some((name, value.as_u64()?)))
                .collect();
            print("hub", &hub)?;
        }
        for (name, counters) in &stats.tenants {
            print(&format!("tenant {name}"), counters)?;
        }
        Ok(())
    }

    fn slots(&self, admin: &mut Admin) -> Result<()> {
        let open = admin.slots(self.tenant.as_deref()).map_err(explain)?;
        if self.json {
            outln!("{}", serde_json::to_string(&open)?);
            return Ok(());
        }
        outln!(
            "{:>6} {:<20} {:>10} {:>10} {:>6} {:<9} waits for",
            "slot",
            "tenant",
            "seq",
            "key",
            "bytes",
            "state"
        );
        for s in &open.slots {
            let state = if s.complete { "complete" } else { "open" };
            let missing: Vec<_> = s.missing.iter().map(u32::to_string).collect();
            let missing = missing.join(" ");
            outln!(
                "{:>6} {:<20} {:>10} {:>10x} {:>6} {state:<9} {missing}",
                s.slot,
                s.tenant,
                s.seq,
                s.key,
                s.bytes
            );
        }
        let more = (open.open as usize).saturating_sub(open.slots.len());
        if more > 0 {
            outln!("and {more} more");
        }
        Ok(())
    }
}

fn print(title: &str, counters: &BTreeMap<String, u64>) -> Result<()> {
    outln!("{title}");
    for (name, value) in counters {
        outln!("  {name:<22} {value:>16}");
    }
    Ok(())
}
