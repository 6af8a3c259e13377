// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A worker of a tenant: what training code calls.

use std::sync::Arc;

use crate::handle::{Done, Handle};
use crate::proto::{Action, Certificate, Kind};
use crate::shared::Shared;
use crate::{Error, Result, Tensor};

/// How contributions become a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// Their sum.
    #[default]
    Sum,
    /// Their sum divided by their number, correctly rounded.
    Mean,
}

impl From<Reduce> for Kind {
    fn from(reduce: Reduce) -> Self {
        match reduce {
            Reduce::Sum => Self::Sum,
            Reduce::Mean => Self::Mean,
        }
    }
}

/// A worker of a tenant, from [`crate::Hub::join`] until it is dropped.
///
/// All workers of a tenant issue the same operations, with the same names, lengths and reductions, in the same order; if one
/// does not, the card notices and one of them gets [`Error::Mismatch`]. A name is only a name: it may come again with another buffer.
///
/// Every wait ends: with the result, or with an error that says who is missing, when nothing has moved for the worker's timeout.
///
/// Its methods may be called from several threads, if these agree on an order that is the same on all workers.
pub struct Worker {
    shared: Arc<Shared>,
    tenant: String,
    rank: u32,
    world: u32,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, tenant: String, rank: u32, world: u32) -> Self {
        Self {
            shared,
            tenant,
            rank,
            world,
        }
    }

    /// Name of the job.
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Which worker this is.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many there are.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// Incarnation of the tenant.
    pub fn epoch(&self) -> u32 {
        self.shared.lock().epoch()
    }

    /// Makes a tensor in card-visible memory, with whatever values that held before. Errors: [`Error::ArenaFull`].
    pub fn alloc(&self, name: &str, elements: usize) -> Result<Tensor> {
        self.shared.lock().check()?;
        let bytes = elements
            .checked_mul(size_of::<f32>())
            .ok_or_else(|| Error::InvalidUsage {
                what: format!("`{name}` would have {elements} elements"),
                remedy: "split it into smaller tensors",
            })?;
        Ok(Tensor::new(
            name,
            elements,
            self.shared.arena.allocate(bytes)?,
        ))
    }

    /// Makes a tensor with these values.
    pub fn stage(&self, name: &str, values: &[f32]) -> Result<Tensor> {
        let mut tensor = self.alloc(name, values.len())?;
        tensor.write_from(values)?;
        Ok(tensor)
    }

    /// Contributes a tensor; its result is pulled later, and takes the tenant's slots until then.
    ///
    /// The operation is finished when the card has taken the values in.
    pub fn push_async(&self, tensor: Tensor, reduce: Reduce) -> Result<Handle> {
        self.start(Action::Push, reduce.into(), tensor)
    }

    /// Takes the result into a tensor: of this worker's push of that name, or, without one, of the others' alone.
    pub fn pull_async(&self, tensor: Tensor, reduce: Reduce) -> Result<Handle> {
        self.start(Action::Pull, reduce.into(), tensor)
    }

    /// Contributes a tensor and takes the result into it.
    pub fn push_pull_async(&self, tensor: Tensor, reduce: Reduce) -> Result<Handle> {
        self.start(Action::PushPull, reduce.into(), tensor)
    }

    /// Gives worker `root`'s values to all.
    pub fn broadcast_async(&self, tensor: Tensor, root: u32) -> Result<Handle> {
        if root >= self.world {
            return Err(Error::InvalidUsage {
                what: format!("broadcast from worker {root} of {}", self.world),
                remedy: "ranks count from 0 to world size - 1",
            });
        }
        let action = if root == self.rank {
            Action::PushWaive
        } else {
            Action::Pull
        };
        self.start(action, Kind::Broadcast, tensor)
    }

    /// Contributes `values`, and waits until the card has them.
    pub fn push(&self, name: &str, values: &[f32], reduce: Reduce) -> Result<()> {
        self.push_async(self.stage(name, values)?, reduce)?.wait()?;
        Ok(())
    }

    /// Waits for the result and copies it into `values`.
    pub fn pull(&self, name: &str, values: &mut [f32], reduce: Reduce) -> Result<Certificate> {
        let tensor = self.alloc(name, values.len())?;
        finish(self.pull_async(tensor, reduce)?.wait()?, values)
    }

    /// Contributes `values`, waits for the result, and copies it into `values`.
    pub fn push_pull(&self, name: &str, values: &mut [f32], reduce: Reduce) -> Result<Certificate> {
        let tensor = self.stage(name, values)?;
        finish(self.push_pull_async(tensor, reduce)?.wait()?, values)
    }

    /// Gives worker `root`'s values to all, into `values`.
    pub fn broadcast(&self, name: &str, values: &mut [f32], root: u32) -> Result<()> {
        let tensor = if root == self.rank {
            self.stage(name, values)?
        } else {
            self.alloc(name, values.len())?
        };
        let done = self.broadcast_async(tensor, root)?.wait()?;
        if root != self.rank {
            done.tensor.read_into(values)?;
        }
        Ok(())
    }

    /// Waits until every worker of the tenant has come here.
    pub fn barrier(&self) -> Result<()> {
        let tensor = self.alloc("barrier", 1)?;
        self.start(Action::Pull, Kind::Barrier, tensor)?.wait()?;
        Ok(())
    }

    /// Waits for what is in flight and leaves the epoch in order. (Dropping a worker with nothing in flight leaves too.)
    ///
    /// The others may finish what this worker had a part in; what needs it later fails with [`Error::PeerLost`].
    pub fn leave(self) -> Result<()> {
        self.shared.drain()?;
        self.shared.lock().leave()
    }

    fn start(&self, action: Action, kind: Kind, tensor: Tensor) -> Result<Handle> {
        if !tensor.block().is_of(&self.shared.arena) {
            return Err(Error::InvalidUsage {
                what: format!("`{}` lies in another worker's memory", tensor.name()),
                remedy: "allocate tensors from the worker that uses them",
            });
        }
        let id = self.shared.lock().begin(action, kind, tensor)?;
        Ok(Handle::new(self.shared.clone(), id))
    }
}

fn finish(done: Done, values: &mut [f32]) -> Result<Certificate> {
    done.tensor.read_into(values)?;
    Ok(done.certificate)
}

impl Drop for Worker {
    fn drop(&mut self) {
        let mut engine = self.shared.lock();
        engine.poll();
        if engine.check().is_ok() && engine.is_idle() && !std::thread::panicking() {
            // A hub that does not answer finds out by the closed connection.
            let _ = engine.leave();
        }
        engine.desert();
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("tenant", &self.tenant)
            .field("rank", &self.rank)
            .field("world", &self.world)
            .finish_non_exhaustive()
    }
}
