// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! What the card promises, each promise on the golden model and on the Verilated card.
//!
//! The sums here are of whole numbers, so that they are exact in every order of contributions.

mod control;
mod layout;
mod refusals;
mod rings;
mod sums;
