// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! What the tests of the whole parameter hub share: a card, a rack of workers on it, and seeds.
//!
//! A test is written once, as a function of a [`card::Card`], and [`on_every_card!`] runs it on each.
#![forbid(unsafe_code)]

pub mod card;
pub mod fault;
pub mod program;
pub mod rack;
pub mod running;
pub mod seed;
