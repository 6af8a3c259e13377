// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Why a Verilated card stopped for good.

/// What the card did wrong. It answers nothing afterwards.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// An assertion of the RTL failed, or it called `$fatal` or `$finish`.
    #[error("cycle {cycle}: {message} (seed {seed})")]
    Assertion {
        /// When.
        cycle: u64,
        /// What the simulator said: name of the assertion, file and line.
        message: String,
        /// Seed of the card, to do it again.
        seed: u64,
    },
    /// The AXI master broke a rule of the AXI specification, or one of the card's own.
    #[error("cycle {cycle}: AXI channel {channel}: {rule} (seed {seed})")]
    Protocol {
        /// When.
        cycle: u64,
        /// AR, R, AW, W or B.
        channel: &'static str,
        /// What was broken.
        rule: String,
        /// Seed of the card, to do it again.
        seed: u64,
    },
    /// A register access was not answered.
    #[error(
        "cycle {cycle}: BAR0 {access} at {offset:#x} was not answered within {limit} cycles (seed {seed})"
    )]
    Unresponsive {
        /// When it was given up.
        cycle: u64,
        /// `read` or `write`.
        access: &'static str,
        /// Byte offset in BAR0.
        offset: u32,
        /// Cycles waited.
        limit: u64,
        /// Seed of the card, to do it again.
        seed: u64,
    },
}

/// Why a Verilated card could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The wanted build is not in this binary.
    #[error("this binary has no {build:?} card; build phub-sim with feature `{feature}`")]
    NotBuilt {
        /// Which.
        build: crate::Build,
        /// The cargo feature that adds it.
        feature: &'static str,
    },
    /// There is not enough memory for the model.
    #[error("the model of the card needs more memory than there is")]
    Memory,
    /// The file for the waves cannot be written.
    #[error("cannot write waves to {path}; choose another file")]
    Trace {
        /// The file.
        path: std::path::PathBuf,
    },
    /// It failed while it was reset.
    #[error("the card failed in its reset: {0}")]
    Failed(#[from] Failure),
    /// No thread could be started.
    #[error("no thread for the card's clock: {0}")]
    Thread(std::io::Error),
}
