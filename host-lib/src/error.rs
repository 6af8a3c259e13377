// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! What can go wrong, to whom, and what to do about it.

use std::time::Duration;

use phub_abi::Status;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
///
/// After [`Error::PeerLost`], [`Error::Timeout`], [`Error::Aborted`], [`Error::Mismatch`], [`Error::Corrupt`],
/// [`Error::Card`], [`Error::CardGone`], [`Error::HubGone`] or [`Error::Expelled`] the worker is out of its epoch: every other
/// operation of it fails alike, and the way on is to drop it and to join again. After the other errors it works on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The hub's socket cannot be reached.
    #[error("no hub at {address}: {reason}")]
    HubUnreachable {
        /// Where it was sought.
        address: String,
        /// What the operating system said.
        reason: String,
    },
    /// The hub has ended, or closed the connection.
    #[error("the hub at {address} is gone ({reason})")]
    HubGone {
        /// Where it was.
        address: String,
        /// How that was noticed.
        reason: String,
    },
    /// The card behind the hub, or its simulator, is gone.
    #[error("the card is gone ({reason})")]
    CardGone {
        /// How the hub noticed.
        reason: String,
    },
    /// The hub did not grant a request.
    #[error("the hub refused: {reason}")]
    Refused {
        /// Which rule.
        code: Refusal,
        /// What exactly.
        reason: String,
    },
    /// Workers of the same tenant died or left while their contribution was needed.
    #[error("worker(s) {} of tenant `{tenant}` lost: {reason}", ranks(missing))]
    PeerLost {
        /// The job.
        tenant: String,
        /// Their ranks.
        missing: Vec<u32>,
        /// How that was noticed.
        reason: String,
    },
    /// Nothing moved for as long as this worker was willing to wait.
    #[error(
        "no progress of tenant `{tenant}` in {waited:?}; waiting for worker(s) {}",
        ranks(missing)
    )]
    Timeout {
        /// The job.
        tenant: String,
        /// How long was waited.
        waited: Duration,
        /// Ranks that have not done their part; empty if none could be named.
        missing: Vec<u32>,
    },
    /// Another worker, or the operator, ended the epoch.
    #[error("epoch of tenant `{tenant}` was aborted by {by}: {reason}")]
    Aborted {
        /// The job.
        tenant: String,
        /// `worker 3`, or `the operator`.
        by: String,
        /// What they stated.
        reason: String,
        /// Ranks that had not done their part; empty if none could be named.
        missing: Vec<u32>,
    },
    /// Workers disagree on what comes next: name, length, order or kind of an operation differs.
    #[error(
        "`{tensor}` ({bytes} bytes) is not what the other workers of tenant `{tenant}` do at sequence number {seq}"
    )]
    Mismatch {
        /// The job.
        tenant: String,
        /// What this worker was at.
        tensor: String,
        /// Its length in bytes.
        bytes: u64,
        /// Where the sequences part.
        seq: u32,
    },
    /// Bytes of a tensor changed between worker and card.
    #[error("`{tensor}` was corrupted {way} the card (sequence number {seq})")]
    Corrupt {
        /// Which one.
        tensor: String,
        /// `on the way to` or `on the way from`.
        way: &'static str,
        /// Of the segment.
        seq: u32,
    },
    /// The card refused or failed a descriptor of this worker in a way the library does not expect.
    #[error("the card failed `{tensor}` with {status:?} at sequence number {seq}")]
    Card {
        /// What was moved.
        tensor: String,
        /// The card's word.
        status: Status,
        /// Of the segment.
        seq: u32,
    },
    /// The hub has stopped this worker's queue, because what it found there made no sense.
    #[error("the hub expelled this worker: {reason}")]
    Expelled {
        /// What it found.
        reason: String,
    },
    /// A call that cannot work.
    #[error("{what}")]
    InvalidUsage {
        /// Why.
        what: String,
        /// What works instead.
        remedy: &'static str,
    },
    /// The worker's card-visible memory has no room for a buffer.
    #[error(
        "no room for {wanted} bytes in the worker's arena: {free} of {total} are free, the longest piece has {longest}"
    )]
    ArenaFull {
        /// Bytes asked for.
        wanted: usize,
        /// Bytes free in all.
        free: usize,
        /// Longest free piece.
        longest: usize,
        /// Bytes the arena has for buffers.
        total: usize,
    },
    /// Hub or card broke the protocol.
    #[error("protocol violation: {what}")]
    Protocol {
        /// What came.
        what: String,
    },
    /// The operating system refused.
    #[error("{what}: {reason}")]
    System {
        /// What was tried.
        what: String,
        /// What it said.
        reason: String,
    },
}

/// Which rule made the hub refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Refusal {
    /// The library and the hub speak different versions of the control protocol.
    Version,
    /// The message is malformed or out of place.
    BadRequest,
    /// The tenant's token is another one.
    WrongToken,
    /// The tenant's world size is another one.
    WorldMismatch,
    /// The rank is not below the world size.
    RankOutOfRange,
    /// A living worker has this rank.
    RankTaken,
    /// The epoch has members that have not left, and one of them will miss those that have.
    EpochClosing,
    /// No such tenant, and the hub does not create tenants on the fly.
    NoSuchTenant,
    /// The tenant exists.
    TenantExists,
    /// Slots, queues, tenants, memory or connections are used up.
    LimitReached,
    /// The caller may not do this.
    NotPermitted,
    /// The card failed.
    CardFailed,
    /// The hub is shutting down.
    ShuttingDown,
}

impl Error {
    /// What to do about it, in one sentence.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::HubUnreachable { .. } => {
                "start phubd, and check the address and that this user may open its socket (mode 0660)"
            }
            Self::HubGone { .. } => "look at phubd's log, start it again, then join again",
            Self::CardGone { .. } => "restart the card or its simulator and phubd, then join again",
            Self::Refused { code, .. } => code.remedy(),
            Self::PeerLost { .. } => "restart the lost workers, and join again from every worker",
            Self::Timeout { .. } => {
                "see why the named workers are late (`phubctl tenant list`, their logs); if they are only slow, raise the timeout"
            }
            Self::Aborted { .. } => {
                "look at the worker that aborted; then join again from every worker"
            }
            Self::Mismatch { .. } => {
                "issue the same operations with the same names and lengths in the same order on every worker"
            }
            Self::Corrupt { .. } => {
                "check the host's memory and PCIe error logs; the sum was not used"
            }
            Self::Card { .. } => {
                "look at `phubctl stats` and phubd's log; this should not happen: please report it"
            }
            Self::Expelled { .. } => "check that nothing else writes to the arena; then join again",
            Self::InvalidUsage { remedy, .. } => remedy,
            Self::ArenaFull { .. } => "drop tensors no longer needed, or join with a larger arena",
            Self::Protocol { .. } => {
                "use the same version of phubd and of the library; if it is the same: please report it"
            }
            Self::System { .. } => {
                "see the operating system's message; `phubctl doctor` checks permissions and limits"
            }
        }
    }

    /// Whether the worker is out of its epoch and must join again.
    #[must_use]
    pub fn ends_epoch(&self) -> bool {
        !matches!(
            self,
            Self::InvalidUsage { .. }
                | Self::ArenaFull { .. }
                | Self::Refused { .. }
                | Self::HubUnreachable { .. }
        )
    }
}

impl Refusal {
    /// What to do about it, in one sentence.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Version => "use the same version of phubd and of the library",
            Self::BadRequest => "see docs/control-protocol.md",
            Self::WrongToken => {
                "give every worker of the job the token of its first worker, or use another tenant name"
            }
            Self::WorldMismatch => {
                "give every worker the same world size, or delete the tenant first"
            }
            Self::RankOutOfRange => "ranks count from 0 to world size - 1",
            Self::RankTaken => {
                "give every worker its own rank, or end the process that has this one"
            }
            Self::EpochClosing => {
                "let every worker of the last run leave (or end) before the next one joins"
            }
            Self::NoSuchTenant => "create it with `phubctl tenant create`",
            Self::TenantExists => "delete it first, or use another name",
            Self::LimitReached => "delete tenants, end workers, or ask for less",
            Self::NotPermitted => "run as the user that runs phubd, or as root",
            Self::CardFailed => "look at phubd's log and `phubctl stats`",
            Self::ShuttingDown => "start phubd again",
        }
    }
}

fn ranks(missing: &[u32]) -> String {
    if missing.is_empty() {
        return "unknown".to_owned();
    }
    missing
        .iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_missing() {
        let error = Error::PeerLost {
            tenant: "job".into(),
            missing: vec![1, 7],
            reason: "its process ended".into(),
        };
        assert_eq!(
            error.to_string(),
            "worker(s) 1, 7 of tenant `job` lost: its process ended"
        );
        assert!(error.ends_epoch());
        let error = Error::ArenaFull {
            wanted: 10,
            free: 4,
            longest: 2,
            total: 8,
        };
        assert!(!error.ends_epoch() && error.remedy().contains("larger arena"));
    }
}
