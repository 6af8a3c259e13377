// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The driver on the golden model: what it does with a card that works, and with one that does not.
#![forbid(unsafe_code)]

mod bench;
mod broken;
mod inspect;
mod queues;
mod socket;
mod tenants;
