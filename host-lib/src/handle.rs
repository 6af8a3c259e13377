// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! An operation in flight, and what comes of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::proto::{Certificate, OpId};
use crate::shared::Shared;
use crate::{Result, Tensor};

/// A finished operation.
#[derive(Debug)]
pub struct Done {
    /// The tensor, back from the card; with the result, if the operation has one.
    pub tensor: Tensor,
    /// What the card says about the result.
    pub certificate: Certificate,
}

/// What a bounded wait gives.
#[derive(Debug)]
pub enum Waited {
    /// The operation is finished.
    Done(Done),
    /// It is not; ask the handle again.
    Pending(Handle),
}

/// An operation in flight. It owns the tensor until it is finished.
///
/// Dropping it does not stop the operation, nor does it free memory the card may touch: the tensor goes when the
/// card is done with it.
#[must_use = "the result, and the errors, come out of `wait`"]
pub struct Handle {
    shared: Arc<Shared>,
    id: OpId,
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>, id: OpId) -> Self {
        Self { shared, id }
    }

    /// Waits until the operation is finished, or fails: at the latest when nothing has moved for the worker's timeout.
    pub fn wait(self) -> Result<Done> {
        match self.shared.wait(self.id, None)? {
            Some(done) => Ok(done),
            None => unreachable!("a wait without end ends with a result"),
        }
    }

    /// Waits for `timeout` at most.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Waited> {
        let until = Instant::now().checked_add(timeout);
        Ok(match self.shared.wait(self.id, until)? {
            Some(done) => Waited::Done(done),
            None => Waited::Pending(self),
        })
    }

    /// Looks whether it is finished, and lets the operations in flight move on.
    pub fn try_wait(self) -> Result<Waited> {
        self.wait_timeout(Duration::ZERO)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.abandon(self.id);
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("id", &self.id.0)
            .finish_non_exhaustive()
    }
}
