// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Driver of the parameter hub card.
#![forbid(unsafe_code)]

pub mod ring;
