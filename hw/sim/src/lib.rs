// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The simulated card: the RTL of `phub_core`, Verilated, with models of all that is around it.
//!
//! ```text
//!  driver ─ PciFunction ─► VerilatedCard (clock in the caller's hand)  ┐
//!                          RunningCard   (clock on its own thread)     ├► card ─► ffi ─► C++ ─► phub_core
//!                                                                      ┘    └► axi_host ─► host memory
//! ```
//!
//! Both give the same answers as the golden model (`phub-model`) and as a real card.
#![deny(unsafe_code)]

mod axi_host;
mod card;
mod failure;
mod ffi;
mod pluggable;
mod running;
mod verilated;

pub use axi_host::AxiConfig;
pub use card::{CardConfig, Taken, Waves};
pub use failure::{Failure, SimError};
pub use ffi::{Build, Parameters};
pub use pluggable::Pluggable;
pub use running::{OnFailure, RunningCard};
pub use verilated::VerilatedCard;
