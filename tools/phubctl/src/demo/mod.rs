// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The demo: a card, `phubd`, and worker processes that train a digit classifier through them.

mod digits;
mod mlp;
mod reference;
mod report;
mod run;
mod screen;
pub(crate) mod worker;

pub(crate) use run::{Interrupted, Options, Summary, run};
