// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The worker's side of the protocol as pure state machines: no socket, no clock, no thread, no memory
//! shared with anybody.

mod flow;
mod key;
mod sequence;

pub use flow::Certificate;
pub(crate) use flow::{Event, Flow, Op, OpId, Outgoing};
pub(crate) use key::{Kind, chunk_key};
pub(crate) use sequence::{Action, PlanError, Sequencer};
