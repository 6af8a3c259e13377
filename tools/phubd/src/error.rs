// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Why a hub did not start, or ended.

use std::path::PathBuf;

/// Why a hub did not start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The card could not be opened.
    #[error("cannot open the card: {0}")]
    Open(String),
    /// The card was lost while serving.
    #[error("the card is gone ({0}); restart it, then this hub")]
    CardGone(String),
    /// Somebody serves on that socket already.
    #[error("another hub serves on {0}; stop it first, or use another path")]
    InUse(PathBuf),
    /// The operating system refused.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl HubError {
    pub(crate) fn system(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::System {
            what: what.into(),
            source: source.into(),
        }
    }
}
