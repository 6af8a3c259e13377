// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Rust (`phub-abi`) and RTL (`phub_pkg`) agree where each field of a descriptor and of a completion lies.
//!
//! Every field in turn gets a value that no other field can be mistaken for, through the card and back; a field that
//! has moved on either side changes what the card does or what comes back.

use phub_abi::{Completion, CompletionFlags, Descriptor, Flags, Opcode, Status};
use phub_tests::card::Card;
use phub_tests::on_every_card;
use phub_tests::rack::{Rack, Shape, Worker};

on_every_card!(
    every_descriptor_field,
    every_completion_field,
    unused_bytes_of_a_completion,
    status_codes
);

const EPOCH: u32 = 0xe0c1_b2a3;

fn worker(rack: &mut Rack, rank: u8, world: u8) -> Worker {
    let mut tenant = rack.tenant(world, 4);
    tenant.epoch = EPOCH;
    rack.card.set_at(
        tenant.index,
        phub_abi::regs::TenantTableEpoch::default().with_value(EPOCH),
    );
    rack.worker(tenant, rank, Shape::default())
}

/// A descriptor whose every field is told by the slot it opens, the completion, or the memory it touches.
fn every_descriptor_field(card: Card) {
    let mut rack = Rack::new(card);
    let mut w = worker(&mut rack, 0, 1);
    let data: Vec<u32> = (0..300).map(|i| 0x4000_0000 + i).collect();
    let src = w.words(&data);
    let dst = w.buffer(1200);
    let crc = crc32fast::hash(&w.bytes(src.offset, 1200));
    let d = Descriptor {
        opcode: Opcode::PushPull as u8,
        flags: Flags::MEAN.with(Flags::CRC),
        cid: 0xc1d0,
        epoch: EPOCH,
        seq: 0x5e95_e903,
        key: 0x6e79_4321,
        src: src.iova,
        dst: dst.iova,
        length: 1200,
        crc,
        reserved: [0; 24],
    };
    let c = w.expect(d, Status::Ok);
    assert_eq!(c.cid, 0xc1d0);
    assert_eq!(c.seq, 0x5e95_e904);
    assert_eq!(c.bytes, 1200);
    assert_eq!(
        c.flags,
        CompletionFlags(CompletionFlags::MEAN.0 | CompletionFlags::CRC_CHECKED.0)
    );
    assert_eq!(w.read(dst), data);
    for (slot, bytes) in [(3, 1024), (4, 176)] {
        let slot = rack.slot(w.tenant.slot_base + slot);
        assert_eq!((slot.key, slot.bytes), (0x6e79_4321, bytes));
    }
    // A wrong value in each checked field is noticed as a wrong value of that field.
    let next = Descriptor {
        seq: 0x5e95_e910,
        ..d
    };
    for (wrong, status) in [
        (Descriptor { crc: !crc, ..next }, Status::CrcError),
        (
            Descriptor {
                epoch: !EPOCH,
                ..next
            },
            Status::StaleEpoch,
        ),
        (Descriptor { seq: d.seq, ..next }, Status::StaleSeq),
        (
            Descriptor {
                src: src.iova + 1,
                ..next
            },
            Status::BadAlign,
        ),
        (
            Descriptor {
                dst: dst.iova + 1,
                ..next
            },
            Status::BadAlign,
        ),
        (Descriptor { src: 0, ..next }, Status::OutOfWindow),
        (Descriptor { dst: 0, ..next }, Status::OutOfWindow),
        (
            Descriptor {
                length: 1201,
                ..next
            },
            Status::BadLength,
        ),
        (
            Descriptor {
                opcode: 0xa5,
                ..next
            },
            Status::BadOpcode,
        ),
        (
            Descriptor {
                flags: Flags(0x90),
                ..next
            },
            Status::BadOpcode,
        ),
    ] {
        w.expect(wrong, status);
    }
    for byte in 0..24 {
        let mut reserved = [0; 24];
        reserved[byte] = 0x81;
        w.expect(Descriptor { reserved, ..next }, Status::BadOpcode);
    }
}

fn every_completion_field(card: Card) {
    let mut rack = Rack::new(card);
    // A queue, a worker and a count that differ from each other and from zero.
    let first = worker(&mut rack, 0, 9);
    let tenant = first.tenant;
    let mut others: Vec<_> = (1..9)
        .map(|rank| rack.worker(tenant, rank, Shape::default()))
        .collect();
    let words = [0x7f80_0000, 0x3f80_0000, 0x4000_0000];
    // Workers 1, 2, 4 and 7 contribute; 3, 5, 6 and 8 only take; 0 pushes nothing.
    let mut workers = vec![first];
    workers.append(&mut others);
    let mut dst = Vec::new();
    for w in &mut workers {
        let to = w.buffer(12);
        let mut d = if [1, 2, 4, 7].contains(&w.rank) {
            let src = w.words(&words);
            w.push_pull(0xf00d_0001, src, to)
        } else {
            w.pull(0xf00d_0001, to)
        };
        d.cid = 0xab00 + u16::from(w.rank);
        d.flags = Flags::MEAN;
        w.submit(d);
        dst.push(to);
    }
    let mut stamps = Vec::new();
    for (w, dst) in workers.iter_mut().zip(dst) {
        let c = w.wait_for(Status::Ok);
        let want = Completion {
            cid: 0xab00 + u16::from(w.rank),
            status: 0,
            flags: CompletionFlags(CompletionFlags::NON_FINITE.0 | CompletionFlags::MEAN.0),
            bytes: 12,
            epoch: EPOCH,
            crc: crc32fast::hash(&w.bytes(dst.offset, 12)),
            contributors: 0b1001_0110,
            timestamp: c.timestamp,
            seq: 0xf00d_0001,
            count: 4,
            sq_head: 1,
            queue: w.queue as u16,
            phase: true,
        };
        assert_eq!(c, want);
        assert_ne!(c.timestamp, 0);
        stamps.push(c.timestamp);
    }
    let now = rack.card.get::<phub_abi::regs::CycleLo>().value();
    assert!(
        stamps.iter().all(|s| *s <= now.into()),
        "{stamps:?} in cycle {now}"
    );
}

/// What has no meaning is zero, so that it can have one later.
fn unused_bytes_of_a_completion(card: Card) {
    let mut rack = Rack::new(card);
    let mut w = worker(&mut rack, 0, 1);
    let src = w.words(&[u32::MAX; 8]);
    let d = w.push_pull(u32::MAX - 1, src, src);
    let c = w.expect(d, Status::Ok);
    let raw = w.raw_completion(0);
    assert_eq!(raw, c.to_bytes(), "nothing beside the fields");
    assert_eq!(Completion::from_bytes(&raw), c);
}

/// The codes are those of `status_e`; their number is all there is.
fn status_codes(_: Card) {
    let package = include_str!("../../../hw/rtl/pkg/phub_pkg.sv");
    for (code, status) in Status::ALL.iter().enumerate() {
        assert_eq!(usize::from(status.code()), code);
        let name = format!("St{status:?}");
        let line = package
            .lines()
            .find(|l| l.trim_start().starts_with(&format!("{name} ")))
            .expect("a status of the RTL");
        let value = line
            .split("8'd")
            .nth(1)
            .and_then(|v| v.split(|c: char| !c.is_ascii_digit()).next());
        assert_eq!(value.and_then(|v| v.parse().ok()), Some(code), "{name}");
    }
    let count = package
        .lines()
        .filter(|l| l.trim_start().starts_with("St") && l.contains("= 8'd"))
        .count();
    assert_eq!(count, Status::ALL.len());
}
