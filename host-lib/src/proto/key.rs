// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The key of a chunk: what it is, so that the card notices when two workers disagree.

/// What is done with a tensor; all workers must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Sum over the contributors.
    Sum = 0,
    /// Sum divided by the number of contributors.
    Mean = 1,
    /// One worker contributes, the others take.
    Broadcast = 2,
    /// Nobody contributes, everybody waits for everybody.
    Barrier = 3,
}

/// CRC-32 of name, length of the whole tensor, place of the chunk, and kind.
pub(crate) fn chunk_key(name: &str, bytes: u64, chunk: u32, kind: Kind) -> u32 {
    let mut hash = crc32fast::Hasher::new();
    hash.update(name.as_bytes());
    // The fields after the name have a fixed length, so that no name can imitate them.
    hash.update(&bytes.to_le_bytes());
    hash.update(&chunk.to_le_bytes());
    hash.update(&[kind as u8]);
    hash.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_counts() {
        let key = chunk_key("w", 4096, 1, Kind::Sum);
        assert_eq!(key, chunk_key("w", 4096, 1, Kind::Sum));
        assert_ne!(key, chunk_key("v", 4096, 1, Kind::Sum));
        assert_ne!(key, chunk_key("w", 4092, 1, Kind::Sum));
        assert_ne!(key, chunk_key("w", 4096, 0, Kind::Sum));
        assert_ne!(key, chunk_key("w", 4096, 1, Kind::Mean));
    }
}
