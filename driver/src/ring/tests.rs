// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Rings against a queue that cannot wrap, with a card that reads and writes the same memory.

use std::collections::VecDeque;

use phub_abi::{
    COMPLETION_BYTES, Completion, CompletionFlags, DESCRIPTOR_BYTES, Descriptor, Flags,
};
use phub_sys::{HugePages, Memory};
use proptest::prelude::*;

use super::*;

const OFFSET: u64 = 4096;

fn descriptor(cid: u16) -> Descriptor {
    Descriptor {
        opcode: 3,
        flags: Flags::IRQ,
        cid,
        epoch: 1,
        seq: u32::from(cid) << 8,
        key: !u32::from(cid),
        src: u64::from(cid) << 32,
        dst: u64::MAX - u64::from(cid),
        length: 4,
        crc: 5,
        reserved: [cid as u8; 24],
    }
}

fn completion(cid: u16, phase: bool) -> Completion {
    Completion {
        cid,
        status: 0,
        flags: CompletionFlags::default(),
        bytes: cid.into(),
        epoch: 1,
        crc: !u32::from(cid),
        contributors: u64::MAX,
        timestamp: 7,
        seq: 3,
        count: 64,
        sq_head: 0,
        queue: 0,
        phase,
    }
}

fn memory() -> Memory {
    Memory::new(OFFSET + (64 << 12), HugePages::No).unwrap()
}

/// The card's side of a submission ring.
struct Fetcher {
    memory: Memory,
    size: u16,
    head: u16,
}

impl Fetcher {
    fn fetch(&mut self) -> Descriptor {
        let mut entry = [0; DESCRIPTOR_BYTES];
        self.memory
            .read_at(OFFSET + u64::from(self.head) * 64, &mut entry)
            .unwrap();
        self.head = (self.head + 1) % self.size;
        Descriptor::from_bytes(&entry)
    }
}

/// The card's side of a completion ring.
struct Poster {
    memory: Memory,
    size: u16,
    tail: u16,
    phase: bool,
}

impl Poster {
    fn post(&mut self, cid: u16) {
        let entry: [u8; COMPLETION_BYTES] = completion(cid, self.phase).to_bytes();
        self.memory
            .write_at(OFFSET + u64::from(self.tail) * 64, &entry)
            .unwrap();
        self.tail = (self.tail + 1) % self.size;
        self.phase ^= self.tail == 0;
    }
}

proptest! {
    /// Steps: push if `true`, else the card fetches `skip + 1` entries and says so in one completion.
    #[test]
    fn submissions_arrive_once_and_in_order(
        log2 in 1u8..=4,
        steps in prop::collection::vec((any::<bool>(), 0u16..4), 1..200),
    ) {
        let memory = memory();
        let mut queue = SubmissionQueue::new(&memory, OFFSET, log2).unwrap();
        let mut card = Fetcher { memory, size: 1 << log2, head: 0 };
        let mut model = VecDeque::new();
        let mut cid = 0;
        for (push, batch) in steps {
            prop_assert_eq!(queue.free(), queue.capacity() - model.len());
            if push {
                match queue.push(&descriptor(cid)) {
                    Ok(tail) => {
                        prop_assert!(tail < 1 << log2 && tail == queue.tail());
                        model.push_back(cid);
                        cid = cid.wrapping_add(1);
                    }
                    Err(error) => {
                        prop_assert!(matches!(error, RingError::Full));
                        prop_assert_eq!(model.len(), (1 << log2) - 1);
                    }
                }
            } else {
                for expected in model.drain(..usize::from(batch + 1).min(model.len())) {
                    prop_assert_eq!(card.fetch(), descriptor(expected));
                }
                queue.set_head(card.head).unwrap();
            }
        }
    }

    /// Steps: the card posts if `true`, else the host takes one.
    #[test]
    fn completions_arrive_once_and_in_order(
        log2 in 1u8..=4,
        steps in prop::collection::vec(any::<bool>(), 1..200),
    ) {
        let memory = memory();
        let mut queue = CompletionQueue::new(&memory, OFFSET, log2).unwrap();
        let mut card = Poster { memory, size: 1 << log2, tail: 0, phase: true };
        let mut model = VecDeque::new();
        let mut cid = 0;
        for post in steps {
            if post && model.len() < queue.capacity() {
                card.post(cid);
                model.push_back(cid);
                cid += 1;
            } else {
                let got = queue.pop().map(|c| c.cid);
                prop_assert_eq!(got, model.pop_front());
            }
            prop_assert_eq!((queue.head() + model.len() as u16) % (1 << log2), card.tail);
        }
    }

    #[test]
    fn a_head_outside_what_is_out_is_refused(log2 in 1u8..=4, pushed in 0u16..16, head: u16) {
        let mut queue = SubmissionQueue::new(&memory(), OFFSET, log2).unwrap();
        let pushed = (0..pushed).filter(|cid| queue.push(&descriptor(*cid)).is_ok()).count();
        let result = queue.set_head(head);
        prop_assert_eq!(result.is_ok(), usize::from(head) <= pushed);
        let left = if result.is_ok() { pushed - usize::from(head) } else { pushed };
        prop_assert_eq!(queue.free(), queue.capacity() - left);
    }
}

#[test]
fn the_largest_ring_wraps() {
    let memory = memory();
    let mut queue = SubmissionQueue::new(&memory, OFFSET, 12).unwrap();
    let mut card = Fetcher {
        memory,
        size: 1 << 12,
        head: 0,
    };
    for cid in 0..10_000 {
        queue.push(&descriptor(cid)).unwrap();
        assert_eq!(card.fetch().cid, cid);
        queue.set_head(card.head).unwrap();
    }
}

#[test]
fn rings_that_cannot_be_are_refused() {
    let memory = memory();
    for log2 in [0, 13, 255] {
        assert!(
            matches!(SubmissionQueue::new(&memory, 0, log2), Err(RingError::Size(l)) if l == log2)
        );
    }
    assert!(matches!(
        CompletionQueue::new(&memory, OFFSET + 64, 12),
        Err(RingError::Memory(_))
    ));
    assert!(matches!(
        CompletionQueue::new(&memory, 4, 1),
        Err(RingError::Memory(_))
    ));
    assert!(CompletionQueue::new(&memory, u64::MAX - 63, 1).is_err());
}

#[test]
fn entries_pass_between_threads() {
    let memory = memory();
    let mut queue = CompletionQueue::new(&memory, OFFSET, 8).unwrap();
    let mut card = Poster {
        memory,
        size: 1 << 8,
        tail: 0,
        phase: true,
    };
    let (read, reads) = std::sync::mpsc::channel();
    let poster = std::thread::spawn(move || {
        let mut credit = (1 << 8) - 1;
        for cid in 0..20_000 {
            if credit == 0 {
                credit += reads.recv().unwrap();
            }
            credit -= 1;
            // As hw/model does: the dword with the phase last, with Release.
            let entry = completion(cid, card.phase).to_bytes();
            let at = OFFSET + u64::from(card.tail) * 64;
            let (body, phase) = entry.split_at(Completion::PHASE_OFFSET);
            card.memory.write_at(at, body).unwrap();
            let phase = u32::from_le_bytes(phase.try_into().unwrap());
            card.memory
                .store_u32(at + body.len() as u64, phase, Ordering::Release)
                .unwrap();
            card.tail = (card.tail + 1) % card.size;
            card.phase ^= card.tail == 0;
        }
    });
    for cid in 0..20_000 {
        let got = loop {
            match queue.pop() {
                Some(got) => break got,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(got, completion(cid, got.phase));
        if cid % 16 == 15 {
            let _ = read.send(16); // the card has posted all by the last time
        }
    }
    drop(read);
    poster.join().unwrap();
}
