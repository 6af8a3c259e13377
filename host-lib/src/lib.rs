// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Host library of the parameter hub: workers push gradients, the card sums them, workers pull the result.
//!
//! ```no_run
//! use phub::{Hub, JoinOptions, Reduce};
//!
//! # fn main() -> phub::Result<()> {
//! let worker = Hub::connect("unix:/run/phub/phubd.sock")?.join("my-job", 0, 4, 0x5ec7e7, JoinOptions::default())?;
//!
//! // Simplest: a slice in, the mean over all workers out.
//! let mut gradient = vec![0.5; 10_000];
//! worker.push_pull("layer1", &mut gradient, Reduce::Mean)?;
//!
//! // Fastest: tensors in card-visible memory, several in flight.
//! let handles = ["layer2", "layer3"]
//!     .map(|name| worker.alloc(name, 10_000).and_then(|tensor| worker.push_pull_async(tensor, Reduce::Mean)));
//! for handle in handles {
//!     let done = handle?.wait()?;
//!     println!("{} summed over {:#b}", done.tensor.name(), done.certificate.contributors);
//! }
//! worker.leave()
//! # }
//! ```
//!
//! Reading order of a gradient: [`Worker`] → `engine` → `proto` → `chunk` → `transport/ring` → (the hub's doorbell thread, the card) →
//! `transport/ring` → `proto` → [`Handle`].
#![forbid(unsafe_code)]

pub mod admin;
mod arena;
mod chunk;
mod client;
pub mod control;
mod engine;
mod error;
mod handle;
mod proto;
mod shared;
mod tensor;
mod transport;
mod worker;

pub use chunk::CHUNK_BYTES;
pub use client::{Address, Hub, JoinOptions};
pub use error::{Error, Refusal, Result};
pub use handle::{Done, Handle, Waited};
pub use proto::Certificate;
pub use tensor::Tensor;
pub use worker::{Reduce, Worker};
