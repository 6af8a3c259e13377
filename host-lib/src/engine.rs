// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! What a worker has in flight, and how it moves: completions in, chunks out.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use phub_abi::Status;

use crate::chunk::{CHUNK_BYTES, descriptor};
use crate::control::{AbortCause, Connection, Fate, Joined, Reply, Request};
use crate::error::{Error, Result};
use crate::handle::Done;
use crate::proto::{Action, Certificate, Event, Flow, Kind, Op, OpId, PlanError, Sequencer};
use crate::tensor::Tensor;
use crate::transport::Ring;

/// How long to wait for a hub that has aborted the epoch to say so.
const ABORT_PATIENCE: Duration = Duration::from_secs(5);
/// How long an operation may stand still after a worker has left, before the hub is asked whether that is why.
const DEPARTED_PATIENCE: Duration = Duration::from_secs(1);

/// Who this worker is, and how it was told to work.
pub(crate) struct Settings {
    pub(crate) tenant: String,
    pub(crate) rank: u32,
    pub(crate) timeout: Duration,
    pub(crate) crc: bool,
    pub(crate) first_sequence: u32,
}

struct Record {
    tensor: Tensor,
    outcome: Option<Certificate>,
    /// Nobody will ask for the outcome.
    abandoned: bool,
}

/// Everything behind the worker's lock.
pub(crate) struct Engine {
    settings: Settings,
    epoch: u32,
    sequencer: Sequencer,
    flow: Flow,
    ring: Ring,
    control: Connection,
    records: HashMap<OpId, Record>,
    /// Why nothing works any more.
    failure: Option<Error>,
    /// The card aborts what we have: the hub is about to say why.
    aborting_since: Option<Instant>,
    /// When something last moved.
    progress: Instant,
    /// When the hub last said that nobody who has left is waited for.
    departed_asked: Option<Instant>,
    /// A thread is asleep on the eventfd.
    pub(crate) sleeping: bool,
    scratch: Box<[u8]>,
}

impl Engine {
    pub(crate) fn new(
        settings: Settings,
        joined: &Joined,
        ring: Ring,
        control: Connection,
    ) -> Self {
        Self {
            epoch: joined.epoch,
            sequencer: Sequencer::new(settings.first_sequence, joined.segment_bytes, joined.slots),
            flow: Flow::new(joined.segment_bytes, joined.epoch, settings.crc),
            settings,
            ring,
            control,
            records: HashMap::new(),
            failure: None,
            aborting_since: None,
            progress: Instant::now(),
            departed_asked: None,
            sleeping: false,
            scratch: vec![0; CHUNK_BYTES as usize].into(),
        }
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Fails if the worker is out of its epoch.
    pub(crate) fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.flow.is_idle()
    }

    /// Starts an operation on `tensor`.
    pub(crate) fn begin(&mut self, action: Action, kind: Kind, tensor: Tensor) -> Result<OpId> {
        self.check()?;
        let (name, bytes) = (tensor.shared_name().clone(), tensor.bytes());
        if bytes == 0 {
            let (id, certificate) = self.flow.begin_empty();
            self.records.insert(
                id,
                Record {
                    tensor,
                    outcome: Some(certificate),
                    abandoned: false,
                },
            );
            return Ok(id);
        }
        let seq = self
            .sequencer
            .begin(action, kind, &name, bytes)
            .map_err(|e| usage(&name, &e))?;
        let id = self.flow.begin(Op {
            name,
            action,
            kind,
            seq,
            bytes,
        });
        self.records.insert(
            id,
            Record {
                tensor,
                outcome: None,
                abandoned: false,
            },
        );
        self.poll();
        Ok(id)
    }

    /// Lets everything move that can. Returns whether an operation finished or all failed.
    pub(crate) fn poll(&mut self) -> bool {
        if self.failure.is_some() {
            return false;
        }
        // The flag is read first: what the card wrote before the hub set it is then in the ring.
        let ended = self.ring.page().has_ended();
        let mut finished = false;
        while self.failure.is_none() {
            let completion = match self.ring.pop() {
                Ok(Some(completion)) => completion,
                Ok(None) => break,
                Err(error) => {
                    self.give_up(Error::Protocol {
                        what: error.to_string(),
                    });
                    break;
                }
            };
            self.progress = Instant::now();
            match self.flow.complete(&completion) {
                Ok(Event::Done {
                    op,
                    chunk,
                    crc,
                    finished: certificate,
                }) => {
                    if let Some(crc) = crc
                        && self.settings.crc
                        && self.chunk_crc(op, chunk.offset, chunk.bytes) != Some(crc)
                    {
                        self.give_up(self.corrupt(op, "on the way from", completion.seq));
                        return true;
                    }
                    if let Some(certificate) = certificate {
                        finished = true;
                        self.finish(op, certificate);
                    }
                }
                Ok(Event::Failed {
                    op,
                    status,
                    seq,
                    contributors,
                }) => {
                    tracing::debug!(?status, seq, contributors, "descriptor failed");
                    self.descriptor_failed(op, status, seq);
                }
                Err(violation) => self.give_up(Error::Protocol { what: violation.0 }),
            }
        }
        if self.failure.is_none() && ended {
            let fate = self.fate();
            self.fail(fate);
        }
        if self.failure.is_none()
            && self
                .aborting_since
                .is_some_and(|since| since.elapsed() > ABORT_PATIENCE)
        {
            self.give_up(Error::Protocol {
                what: "the card aborted the epoch and the hub does not say why".into(),
            });
        }
        if self.failure.is_none() {
            self.submit();
        }
        finished || self.failure.is_some()
    }

    /// Sends as many chunks as the ring holds.
    fn submit(&mut self) {
        while self.aborting_since.is_none()
            && self.ring.has_room()
            && let Some(out) = self.flow.next()
        {
            let crc = match out.action {
                Action::Pull => None,
                _ if !self.settings.crc => None,
                _ => self.chunk_crc(out.op, out.chunk.offset, out.chunk.bytes),
            };
            let Some(record) = self.records.get(&out.op) else {
                continue;
            };
            let iova = record.tensor.block().iova(out.chunk.offset);
            if let Err(error) = self.ring.push(&descriptor(&out, self.epoch, iova, crc)) {
                return self.give_up(Error::Protocol {
                    what: error.to_string(),
                });
            }
        }
        if let Err(error) = self.ring.ring() {
            // The hub lets go of the kick socket when it ends the epoch, and when it ends itself: it knows which.
            tracing::debug!(%error, "the hub does not take kicks any more");
            let fate = self.fate();
            self.fail(fate);
        }
    }

    /// What the caller of `wait` gets, once: the outcome, the failure, or nothing yet.
    pub(crate) fn take(&mut self, id: OpId) -> Option<Result<Done>> {
        if self.records.get(&id)?.outcome.is_some() {
            let record = self.records.remove(&id)?;
            return Some(Ok(Done {
                tensor: record.tensor,
                certificate: record.outcome?,
            }));
        }
        self.failure.clone().map(Err)
    }

    /// Nobody will ask for this operation.
    pub(crate) fn abandon(&mut self, id: OpId) {
        if let Some(record) = self.records.get_mut(&id) {
            record.abandoned = true;
            if record.outcome.is_some() {
                self.records.remove(&id);
            }
        }
    }

    /// When the wait that began at `start` is over: [`Engine::expire`] is to be called then.
    pub(crate) fn deadline(&self, start: Instant) -> Instant {
        let mut deadline = self.timed_out(start);
        if self.ring.page().departed() != 0 {
            let asked = self.departed_asked.unwrap_or(start);
            deadline = deadline.min(self.progress.max(start).max(asked) + DEPARTED_PATIENCE);
        }
        match self.aborting_since {
            Some(since) => deadline.min(since + ABORT_PATIENCE + Duration::from_millis(1)),
            None => deadline,
        }
    }

    fn timed_out(&self, start: Instant) -> Instant {
        self.progress.max(start) + self.settings.timeout
    }

    /// Ends the epoch, because nothing has moved in a wait since `start` until the deadline; or asks whether to.
    pub(crate) fn expire(&mut self, start: Instant) {
        if self.failure.is_some() || self.aborting_since.is_some() {
            return;
        }
        let now = Instant::now();
        let cause = if now >= self.timed_out(start) {
            AbortCause::Timeout
        } else {
            AbortCause::Departed
        };
        match self.abort(cause) {
            Some(fate) => self.fail(fate),
            None => self.departed_asked = Some(now),
        }
    }

    /// The hub has closed the connection.
    pub(crate) fn hub_closed(&mut self) {
        self.poll();
        if self.failure.is_none() {
            self.fail(self.gone(&"connection closed"));
        }
    }

    /// Leaves the epoch in order. Only when idle.
    pub(crate) fn leave(&mut self) -> Result<()> {
        self.check()?;
        let answer = self.control.call(&Request::Leave)?.message;
        self.fail(Error::InvalidUsage {
            what: "the worker has left".into(),
            remedy: "join again",
        });
        match answer {
            Reply::Left => Ok(()),
            other => Err(crate::control::unexpected("leave", &other)),
        }
    }

    /// Fails what is in flight and closes the connection: the hub takes this worker for lost.
    pub(crate) fn desert(&mut self) {
        let error = Error::InvalidUsage {
            what: "the worker was dropped".into(),
            remedy: "keep it until its handles are done",
        };
        self.fail(error);
        self.control.close();
    }

    fn finish(&mut self, id: OpId, certificate: Certificate) {
        if let Some(record) = self.records.get_mut(&id) {
            if record.abandoned {
                self.records.remove(&id);
            } else {
                record.outcome = Some(certificate);
            }
        }
    }

    fn descriptor_failed(&mut self, id: OpId, status: Status, seq: u32) {
        let (tensor, bytes) = match self.flow.op(id) {
            Some(op) => (op.name.to_string(), op.bytes),
            None => (String::new(), 0),
        };
        let tenant = self.settings.tenant.clone();
        let error = match status {
            // Somebody else's doing, and the hub knows whose.
            Status::Aborted | Status::StaleEpoch | Status::TenantOff => {
                self.aborting_since.get_or_insert_with(Instant::now);
                return;
            }
            Status::Mismatch => Error::Mismatch {
                tenant,
                tensor,
                bytes,
                seq,
            },
            Status::CrcError => self.corrupt(id, "on the way to", seq),
            _ => Error::Card {
                tensor,
                status,
                seq,
            },
        };
        self.give_up(error);
    }

    /// Ends the epoch for all, because of `error`, which is this worker's own.
    fn give_up(&mut self, error: Error) {
        if self.failure.is_none() {
            self.abort(AbortCause::Failed {
                what: error.to_string(),
            });
            self.fail(error);
        }
    }

    /// Asks the hub to end the epoch; how it ended, or `None` if it goes on.
    fn abort(&mut self, cause: AbortCause) -> Option<Error> {
        match self.control.call(&Request::Abort { cause }) {
            Ok(answer) => match answer.message {
                Reply::Ended(fate) => Some(self.explain(fate)),
                Reply::Alive => None,
                other => Some(crate::control::unexpected("abort", &other)),
            },
            Err(error) => Some(error),
        }
    }

    fn fate(&mut self) -> Error {
        match self.control.call(&Request::Fate) {
            Ok(answer) => match answer.message {
                Reply::Ended(fate) => self.explain(fate),
                other => crate::control::unexpected("fate", &other),
            },
            Err(error) => error,
        }
    }

    fn explain(&self, fate: Fate) -> Error {
        let tenant = self.settings.tenant.clone();
        let me = self.settings.rank;
        match fate {
            Fate::Lost { ranks, what } => Error::PeerLost {
                tenant,
                missing: ranks,
                reason: what,
            },
            Fate::Timeout { by, missing } if by == me => Error::Timeout {
                tenant,
                waited: self.settings.timeout,
                missing,
            },
            Fate::Timeout { by, missing } => Error::Aborted {
                tenant,
                by: format!("worker {by}"),
                reason: "it waited too long".into(),
                missing,
            },
            Fate::Failed { by, what, missing } => Error::Aborted {
                tenant,
                by: format!("worker {by}"),
                reason: what,
                missing,
            },
            Fate::Expelled { rank, what } if rank == me => Error::Expelled { reason: what },
            Fate::Expelled { rank, what } => Error::PeerLost {
                tenant,
                missing: vec![rank],
                reason: format!("the hub expelled it: {what}"),
            },
            Fate::Deleted => Error::Aborted {
                tenant,
                by: "the operator".into(),
                reason: "the tenant was deleted".into(),
                missing: Vec::new(),
            },
            Fate::CardGone { what } => Error::CardGone { reason: what },
            Fate::Shutdown => self.gone(&"it was shut down"),
        }
    }

    fn fail(&mut self, error: Error) {
        tracing::debug!(%error, "worker is out of its epoch");
        self.failure.get_or_insert(error);
    }

    fn gone(&self, reason: &dyn std::fmt::Display) -> Error {
        Error::HubGone {
            address: self.control.path().display().to_string(),
            reason: reason.to_string(),
        }
    }

    fn corrupt(&self, id: OpId, way: &'static str, seq: u32) -> Error {
        let tensor = self
            .records
            .get(&id)
            .map_or(String::new(), |record| record.tensor.name().to_owned());
        Error::Corrupt { tensor, way, seq }
    }

    /// CRC-32 of a chunk of an operation's tensor as it lies in memory.
    fn chunk_crc(&mut self, id: OpId, offset: u64, bytes: u32) -> Option<u32> {
        let record = self.records.get(&id)?;
        let data = self.scratch.get_mut(..bytes as usize)?;
        record
            .tensor
            .block()
            .read(usize::try_from(offset).ok()?, data)
            .ok()?;
        Some(crc32fast::hash(data))
    }
}

fn usage(name: &str, error: &PlanError) -> Error {
    let (what, remedy) = match error {
        PlanError::PushTooLong { segments, slots } => (
            format!(
                "a push of `{name}` needs {segments} slots until it is pulled, the tenant has {slots}"
            ),
            "use push_pull, push it in smaller tensors, or create the tenant with more slots",
        ),
        PlanError::Unpulled { name: push, slots } => (
            format!(
                "`{name}` would wait for slots that the push of `{push}` holds until it is pulled ({slots} in all)"
            ),
            "pull what was pushed first, or create the tenant with more slots",
        ),
        PlanError::PullDiffers { pushed, kind } => (
            format!("`{name}` was pushed with {pushed} bytes as {kind:?}, and is pulled otherwise"),
            "pull it with the length and the reduction of its push",
        ),
        PlanError::TooLong { bytes } => (
            format!("`{name}` has {bytes} bytes"),
            "split it into tensors of at most 1 TiB",
        ),
    };
    Error::InvalidUsage { what, remedy }
}
