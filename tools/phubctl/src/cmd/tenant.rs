// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! `phubctl tenant`: training jobs of a hub.

use super::Daemon;
use crate::hub::explain;
use anyhow::Result;
use clap::{Args, Subcommand};
use phub::admin::CreateTenant;
use std::process::ExitCode;

/// List, create and delete tenants (training jobs).
#[derive(Args)]
pub(crate) struct Tenant {
    #[command(flatten)]
    daemon: Daemon,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List all tenants and who has joined.
    List {
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Create a tenant that stays until it is deleted. Prints its token.
    Create {
        /// Name of the job.
        name: String,
        /// Number of workers.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
        world: u32,
        /// Secret that workers must present; a random one by default.
        #[arg(long)]
        token: Option<u64>,
        /// log2 of its number of slots.
        #[arg(long)]
        slots_log2: Option<u8>,
    },
    /// End a tenant; its workers get an error.
    Delete {
        /// Name of the job.
        name: String,
    },
}

impl Tenant {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut admin = self.daemon.connect()?;
        match self.action {
            Action::List { json } => {
                let tenants = admin.tenants().map_err(explain)?;
                if json {
                    outln!("{}", serde_json::to_string(&tenants)?);
                } else {
                    outln!(
                        "{:<24} {:>5} {:>6} {:>10} {:>6}  ranks",
                        "tenant",
                        "world",
                        "joined",
                        "epoch",
                        "slots"
                    );
                    for t in tenants {
                        let ranks: Vec<_> = t.members.iter().map(|m| m.rank.to_string()).collect();
                        let (joined, ranks) = (ranks.len(), ranks.join(" "));
                        outln!(
                            "{:<24} {:>5} {joined:>6} {:>10} {:>6}  {ranks}",
                            t.name,
                            t.world,
                            t.epoch,
                            t.slots
                        );
                    }
                }
            }
            Action::Create {
                name,
                world,
                token,
                slots_log2,
            } => {
                let token = token.unwrap_or_else(rand::random);
                let tenant = CreateTenant {
                    name,
                    world,
                    token,
                    slots_log2,
                };
                let made = admin.create_tenant(tenant).map_err(explain)?;
                outln!(
                    "{} of {} workers, {} slots, token {token}",
                    made.name,
                    made.world,
                    made.slots
                );
            }
            Action::Delete { name } => admin.delete_tenant(&name).map_err(explain)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
