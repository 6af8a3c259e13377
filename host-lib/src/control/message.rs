// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Requests, replies, and what they carry.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Layout;
use crate::Refusal;

/// What a client asks. The first request of a connection is [`Request::Hello`]; each gets exactly one [`Reply`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// Opens the conversation.
    Hello {
        /// Must be [`super::VERSION`].
        version: u32,
        /// Who asks, for the log.
        client: String,
    },
    /// Become a worker of a tenant: from now on this connection stands for its life.
    Join(Join),
    /// Stop being a worker, with nothing in flight.
    Leave,
    /// End the epoch, because this worker cannot go on.
    Abort {
        /// Why.
        cause: AbortCause,
    },
    /// How the epoch ended, if it has.
    Fate,
    /// What the hub and its card are.
    Info,
    /// All tenants.
    Tenants,
    /// Makes a tenant that stays until it is deleted.
    CreateTenant(CreateTenant),
    /// Ends a tenant; its workers are told.
    DeleteTenant {
        /// Its name.
        name: String,
    },
    /// Counters of every tenant and of the card.
    Stats,
    /// The open slots.
    Slots {
        /// Of this tenant only.
        tenant: Option<String>,
    },
}

/// A worker's wish to take part in a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// Name of the job.
    pub tenant: String,
    /// Secret of the job.
    pub token: u64,
    /// Number of workers.
    pub world: u32,
    /// Which of them this is.
    pub rank: u32,
    /// Bytes of card-visible memory for tensors.
    pub arena_bytes: u64,
}

/// Why a worker ends its epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub enum AbortCause {
    /// Nothing moved for too long.
    Timeout,
    /// Nothing moves since a worker left: end the epoch if it is waited for, else go on ([`Reply::Alive`]).
    Departed,
    /// An operation failed.
    Failed {
        /// Which and how.
        what: String,
    },
}

/// A tenant to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTenant {
    /// Up to 64 of `A-Z a-z 0-9 . _ : -`.
    pub name: String,
    /// Secret its workers must know.
    pub token: u64,
    /// Number of workers.
    pub world: u32,
    /// log2 of its slots; the hub chooses if absent.
    pub slots_log2: Option<u8>,
}

/// What the hub answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum Reply {
    /// To [`Request::Hello`].
    Hello {
        /// [`super::VERSION`].
        version: u32,
        /// The hub's name and version.
        server: String,
    },
    /// To [`Request::Join`], with three descriptors: arena, completion eventfd, kick socket.
    Joined(Joined),
    /// To [`Request::Leave`]: the card will not touch the arena any more.
    Left,
    /// To [`Request::Abort`], and to [`Request::Fate`] of an epoch that has ended.
    Ended(Fate),
    /// To [`Request::Fate`], and to [`AbortCause::Departed`], of an epoch that goes on.
    Alive,
    /// To [`Request::Info`].
    Info(Info),
    /// To [`Request::Tenants`].
    Tenants {
        /// In order of their names.
        tenants: Vec<TenantInfo>,
    },
    /// To [`Request::CreateTenant`].
    Created(TenantInfo),
    /// To [`Request::DeleteTenant`].
    Deleted,
    /// To [`Request::Stats`].
    Stats(Stats),
    /// To [`Request::Slots`].
    Slots(Slots),
    /// To any request that is not granted.
    Refused {
        /// Which rule.
        code: Refusal,
        /// What exactly.
        reason: String,
    },
}

/// A worker's place in its tenant and in the card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// Incarnation of the tenant.
    pub epoch: u32,
    /// Queue pair of the card.
    pub queue: u32,
    /// Slots of the tenant.
    pub slots: u32,
    /// The card's segment size in bytes.
    pub segment_bytes: u32,
    /// Address of the arena's first byte for the card.
    pub iova: u64,
    /// What lies where in the arena.
    pub layout: Layout,
}

/// How an epoch ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum Fate {
    /// Workers are no longer there.
    Lost {
        /// Their ranks.
        ranks: Vec<u32>,
        /// How that was noticed.
        what: String,
    },
    /// A worker waited too long.
    Timeout {
        /// Which one.
        by: u32,
        /// Ranks that had not done their part.
        missing: Vec<u32>,
    },
    /// A worker's operation failed.
    Failed {
        /// Which one.
        by: u32,
        /// What it said.
        what: String,
        /// Ranks that had not done their part.
        missing: Vec<u32>,
    },
    /// The hub stopped a worker's queue.
    Expelled {
        /// Which one.
        rank: u32,
        /// What it did.
        what: String,
    },
    /// The tenant was deleted.
    Deleted,
    /// The card is gone.
    CardGone {
        /// How that was noticed.
        what: String,
    },
    /// The hub shuts down.
    Shutdown,
}

/// The hub and its card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The hub's name and version.
    pub server: String,
    /// Where the card is.
    pub card: String,
    /// What the card says of itself, by name.
    pub identity: BTreeMap<String, serde_json::Value>,
    /// Seconds since the hub started.
    pub uptime_s: u64,
    /// Living workers.
    pub workers: u32,
    /// Tenants.
    pub tenants: u32,
    /// Longest arena a worker may ask for, in bytes.
    pub arena_max: u64,
    /// Whether a first worker's join makes its tenant.
    pub auto_create: bool,
}

/// One tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantInfo {
    /// Name of the job.
    pub name: String,
    /// Its entry in the card's tenant table.
    pub id: u32,
    /// Number of workers.
    pub world: u32,
    /// Incarnation.
    pub epoch: u32,
    /// Slots.
    pub slots: u32,
    /// Whether it goes away with its last worker.
    pub temporary: bool,
    /// Those who have joined.
    pub members: Vec<Member>,
    /// Ranks that have left the epoch.
    pub departed: Vec<u32>,
}

/// A worker that has joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Rank.
    pub rank: u32,
    /// Process, 0 if unknown.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Queue pair of the card.
    pub queue: u32,
    /// Bytes of its arena.
    pub arena_bytes: u64,
}

/// Counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// The card's counters of each tenant, since it was created, by name.
    pub tenants: BTreeMap<String, BTreeMap<String, u64>>,
    /// The card's performance counters, in cycles and beats since enable.
    pub perf: BTreeMap<String, u64>,
    /// The hub's own.
    pub hub: HubCounters,
}

/// What the hub counts itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubCounters {
    /// Workers that joined.
    pub joins: u64,
    /// Requests refused.
    pub refusals: u64,
    /// Workers whose process ended without leaving.
    pub deaths: u64,
    /// Workers whose queue was stopped.
    pub expulsions: u64,
    /// Epochs aborted.
    pub aborts: u64,
    /// Doorbells passed on to the card.
    pub doorbells: u64,
    /// Times the doorbell thread was woken.
    pub wakeups: u64,
}

/// Open slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// Number of open slots, also of those that did not fit the message.
    pub open: u32,
    /// The first of them.
    pub slots: Vec<SlotInfo>,
}

/// One open slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotInfo {
    /// Its number.
    pub slot: u32,
    /// The tenant's name; empty if the hub does not know it.
    pub tenant: String,
    /// Sequence number of the segment.
    pub seq: u32,
    /// Key of its chunk.
    pub key: u32,
    /// Bytes of the segment.
    pub bytes: u32,
    /// All have joined, and some have not taken the result.
    pub complete: bool,
    /// Ranks that contributed.
    pub contributed: Vec<u32>,
    /// Ranks that are waited for: to join, or if complete, to take the result.
    pub missing: Vec<u32>,
    /// Card cycle at which it was opened.
    pub since: u64,
}

/// The ranks of a bitmap.
pub fn ranks_of(mask: u64) -> Vec<u32> {
    (0..64).filter(|rank| mask >> rank & 1 != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_look_as_documented() {
        let hello = serde_json::to_string(&Request::Hello {
            version: 1,
            client: "x".into(),
        })
        .unwrap();
        assert_eq!(hello, r#"{"request":"hello","version":1,"client":"x"}"#);
        let join: Request = serde_json::from_str(
            r#"{"request":"join","tenant":"t","token":18446744073709551615,"world":2,"rank":0,"arena_bytes":4096,"later":1}"#,
        )
        .unwrap();
        assert!(matches!(join, Request::Join(join) if join.token == u64::MAX));
        let ended = serde_json::to_string(&Reply::Ended(Fate::Lost {
            ranks: vec![1],
            what: "x".into(),
        }))
        .unwrap();
        assert_eq!(
            ended,
            r#"{"reply":"ended","end":"lost","ranks":[1],"what":"x"}"#
        );
        let abort = serde_json::to_string(&Request::Abort {
            cause: AbortCause::Timeout,
        })
        .unwrap();
        assert_eq!(abort, r#"{"request":"abort","cause":{"cause":"timeout"}}"#);
    }

    #[test]
    fn ranks_of_a_mask() {
        assert_eq!(ranks_of(0b1010 | 1 << 63), vec![1, 3, 63]);
    }
}
