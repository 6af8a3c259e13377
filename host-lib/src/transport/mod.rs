// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! How chunks get to the card and results back. The hub's address decides: today shared-memory rings on the
//! card's own host.

mod ring;

pub(crate) use ring::{Ring, Waker};
