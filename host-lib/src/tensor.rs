// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! FP32 arrays in memory the card can reach: no copy is made on their way to the card.

use std::sync::Arc;

use crate::Result;
use crate::arena::Block;

/// A named array of FP32 values in card-visible memory, owned by the worker while it has this.
///
/// An asynchronous operation takes the tensor and gives it back when the card is done: in between nobody can touch it.
/// Values go in and out by copy; there is never a reference into memory that the card, another process, may write.
pub struct Tensor {
    name: Arc<str>,
    elements: usize,
    block: Block,
}

impl Tensor {
    pub(crate) fn new(name: &str, elements: usize, block: Block) -> Self {
        debug_assert_eq!(block.bytes(), elements * size_of::<f32>());
        Self {
            name: name.into(),
            elements,
            block,
        }
    }

    /// Its name, the same on every worker.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Whether it has no values.
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// Copies `values` in, from element 0. Fails with [`crate::Error::InvalidUsage`] if there are more than fit.
    pub fn write_from(&mut self, values: &[f32]) -> Result<()> {
        self.write_at(0, values)
    }

    /// Copies `values` in, from element `first` on.
    pub fn write_at(&mut self, first: usize, values: &[f32]) -> Result<()> {
        self.block.write_f32(first, values)
    }

    /// Copies values out, from element 0. Fails with [`crate::Error::InvalidUsage`] if `values` is longer.
    pub fn read_into(&self, values: &mut [f32]) -> Result<()> {
        self.read_at(0, values)
    }

    /// Copies values out, from element `first` on.
    pub fn read_at(&self, first: usize, values: &mut [f32]) -> Result<()> {
        self.block.read_f32(first, values)
    }

    /// All values.
    pub fn to_vec(&self) -> Result<Vec<f32>> {
        let mut values = vec![0.0; self.elements];
        self.read_into(&mut values)?;
        Ok(values)
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.block.bytes() as u64
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tensor")
            .field("name", &self.name)
            .field("elements", &self.elements)
            .finish_non_exhaustive()
    }
}
