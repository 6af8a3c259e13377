// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The subcommands, one file each.

pub(crate) mod bind;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod info;
pub(crate) mod replay;
pub(crate) mod sim;
pub(crate) mod stats;
pub(crate) mod tenant;

use crate::hub::explain;
use anyhow::Result;
use clap::Args;
use phub::admin::Admin;
use std::path::PathBuf;
use std::time::Duration;

/// Where `phubd` listens.
#[derive(Args)]
pub(crate) struct Daemon {
    /// Socket of phubd.
    #[arg(long, env = "PHUB_SOCKET", default_value = "/run/phub/phubd.sock")]
    socket: PathBuf,
    /// Seconds to wait for an answer.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

impl Daemon {
    /// A connection to it.
    pub(crate) fn connect(&self) -> Result<Admin> {
        Admin::connect(&self.socket, Duration::from_secs(self.timeout)).map_err(explain)
    }
}
