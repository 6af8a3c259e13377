// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A worker that is wrong or lies hears so itself, and nobody else does.

use phub_abi::regs::{
    CountersDmaErrorsLo, CountersDuplicatesLo, CountersMismatchesLo, CountersRefusedLo,
    CountersStaleLo, QueueTableWinSizeHi, QueueTableWinSizeLo, TenantTableCtrl,
};
use phub_abi::{Completion, CompletionFlags, Descriptor, Flags, LENGTH_MAX, Opcode, PAGE, Status};
use phub_tests::card::Card;
use phub_tests::on_every_card;
use phub_tests::rack::{Buffer, Rack, Shape, Worker};

on_every_card!(
    every_lie_has_its_status,
    checks_come_in_order,
    duplicate_push,
    push_after_abstaining,
    key_or_length_differ,
    stale_sequence_numbers,
    pull_twice,
    tenant_off_and_worker_beyond_the_world,
    unmapped_payload,
    unmapped_result,
    a_failed_descriptor_does_not_stop_its_queue,
    another_tenant_is_not_disturbed,
);

const UNMAPPED: u64 = 0x7777_0000_0000;

/// A tenant with one worker, one with two, and their workers: the first of them is the liar.
fn liar(card: Card) -> (Rack, Worker, Worker) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(2, 3);
    let liar = rack.worker(tenant, 0, Shape::default());
    let other = rack.worker(tenant, 1, Shape::default());
    (rack, liar, other)
}

/// A failed completion certifies nothing.
#[track_caller]
fn assert_bare(c: &Completion, seq: u32) {
    assert_eq!((c.seq, c.bytes), (seq, 0));
    assert_eq!(
        (c.crc, c.contributors, c.count, c.flags),
        (0, 0, 0, CompletionFlags(0))
    );
}

fn every_lie_has_its_status(card: Card) {
    let (_rack, mut w, other) = liar(card);
    let (src, dst) = (w.floats(&[1.0; 64]), w.buffer(256));
    let window_end = w.iova + w.memory.len();
    let push = w.push(9, src);
    let pull = w.pull(9, dst);
    let both = w.push_pull(9, src, dst);
    let mut reserved = [[0; 24]; 3];
    (reserved[0][0], reserved[1][11], reserved[2][23]) = (1, 0x80, 1);
    let mut lies = vec![
        (Descriptor { opcode: 0, ..push }, Status::BadOpcode),
        (Descriptor { opcode: 4, ..push }, Status::BadOpcode),
        (
            Descriptor {
                opcode: 0xff,
                ..push
            },
            Status::BadOpcode,
        ),
        (
            Descriptor {
                flags: Flags(0x10),
                ..push
            },
            Status::BadOpcode,
        ),
        (
            Descriptor {
                flags: Flags(0x80),
                ..pull
            },
            Status::BadOpcode,
        ),
        (
            Descriptor {
                flags: Flags::WAIVE,
                ..pull
            },
            Status::BadOpcode,
        ),
        (
            Descriptor {
                flags: Flags::WAIVE,
                ..both
            },
            Status::BadOpcode,
        ),
        (
            Descriptor {
                flags: Flags::CRC,
                ..pull
            },
            Status::BadOpcode,
        ),
        (
            Descriptor {
                src: src.iova,
                ..pull
            },
            Status::BadOpcode,
        ),
        (
            Descriptor {
                dst: dst.iova,
                ..push
            },
            Status::BadOpcode,
        ),
        (Descriptor { length: 0, ..push }, Status::BadLength),
        (Descriptor { length: 3, ..pull }, Status::BadLength),
        (Descriptor { length: 6, ..both }, Status::BadLength),
        (
            Descriptor {
                length: LENGTH_MAX + 4,
                ..push
            },
            Status::BadLength,
        ),
        (
            Descriptor {
                length: u32::MAX - 3,
                ..pull
            },
            Status::BadLength,
        ),
        (
            Descriptor {
                src: src.iova + 4,
                ..push
            },
            Status::BadAlign,
        ),
        (
            Descriptor {
                dst: dst.iova + 32,
                ..pull
            },
            Status::BadAlign,
        ),
        (
            Descriptor {
                dst: dst.iova + 1,
                ..both
            },
            Status::BadAlign,
        ),
        (
            Descriptor {
                src: w.iova,
                ..push
            },
            Status::OutOfWindow,
        ),
        (
            Descriptor {
                src: other.iova + 0x4000,
                ..push
            },
            Status::OutOfWindow,
        ),
        (
            Descriptor {
                dst: other.iova + 0x4000,
                ..pull
            },
            Status::OutOfWindow,
        ),
        (
            Descriptor {
                dst: other.iova + 0x4000,
                ..both
            },
            Status::OutOfWindow,
        ),
        (
            Descriptor {
                src: UNMAPPED,
                ..push
            },
            Status::OutOfWindow,
        ),
        (Descriptor { src: 0, ..push }, Status::OutOfWindow),
        (
            Descriptor {
                dst: u64::MAX - 63,
                ..pull
            },
            Status::OutOfWindow,
        ),
        (
            Descriptor {
                src: window_end,
                ..push
            },
            Status::OutOfWindow,
        ),
        (
            Descriptor {
                src: window_end - 192,
                ..push
            },
            Status::OutOfWindow,
        ),
        (
            Descriptor {
                length: LENGTH_MAX,
                ..push
            },
            Status::OutOfWindow,
        ),
        (Descriptor { epoch: 0, ..push }, Status::StaleEpoch),
        (Descriptor { epoch: 2, ..pull }, Status::StaleEpoch),
        (
            Descriptor {
                epoch: 0x8000_0001,
                ..both
            },
            Status::StaleEpoch,
        ),
    ];
    lies.extend(reserved.map(|reserved| (Descriptor { reserved, ..push }, Status::BadOpcode)));
    let before = w.all_buffers();
    for (lie, status) in &lies {
        let c = w.expect(*lie, *status);
        assert_bare(&c, 9);
        assert_eq!(c.epoch, 1, "the completion states the tenant's epoch");
    }
    assert_eq!(
        w.all_buffers(),
        before,
        "a refused descriptor writes nothing"
    );
    let count = lies.len() as u64;
    assert_eq!(_rack.counter::<CountersRefusedLo>(w.tenant), count);
}

/// With everything wrong at once, the first check answers; each repair reveals the next.
fn checks_come_in_order(card: Card) {
    let (_rack, mut w, _other) = liar(card);
    let good = w.buffer(256);
    let mut d = Descriptor {
        flags: Flags(0x40),
        ..w.push(0, good)
    };
    (d.opcode, d.length, d.src, d.epoch) = (9, 7, 3, 44);
    w.expect(d, Status::BadOpcode);
    d.opcode = Opcode::Push as u8;
    w.expect(d, Status::BadOpcode);
    d.flags = Flags::NONE;
    w.expect(d, Status::BadLength);
    d.length = 64;
    w.expect(d, Status::BadAlign);
    d.src = 64;
    w.expect(d, Status::OutOfWindow);
    d.src = good.iova;
    w.expect(d, Status::StaleEpoch);
    d.epoch = w.tenant.epoch;
    w.expect(d, Status::Ok);
}

fn duplicate_push(card: Card) {
    let (rack, mut a, mut b) = liar(card);
    let (src, dst) = (a.floats(&[1.0; 600]), a.buffer(2400));
    let push = a.push(0, src);
    a.expect(push, Status::Ok);
    for again in [
        a.push(0, src),
        Descriptor {
            flags: Flags::WAIVE,
            ..a.push(0, src)
        },
    ] {
        let c = a.expect(again, Status::Duplicate);
        assert_bare(&c, 0);
    }
    // A duplicate of the last segment only.
    let tail = Buffer {
        iova: src.iova + 2048,
        len: 352,
        ..src
    };
    let d = Descriptor {
        key: push.key,
        ..a.push(2, tail)
    };
    assert_bare(&a.expect(d, Status::Duplicate), 2);
    let (bsrc, bdst) = (b.floats(&[2.0; 600]), b.buffer(2400));
    let d = b.push_pull(0, bsrc, bdst);
    b.submit(d);
    let pull = a.pull(0, dst);
    a.expect(pull, Status::Ok);
    assert_eq!(b.wait_for(Status::Ok).contributors, 0b11);
    assert_eq!(a.read_floats(dst), [3.0; 600]);
    assert_eq!(b.read_floats(bdst), [3.0; 600]);
    assert_eq!(rack.counter::<CountersDuplicatesLo>(a.tenant), 3 + 3 + 1);
}

fn push_after_abstaining(card: Card) {
    let (_rack, mut a, mut b) = liar(card);
    let dst = a.buffer(8);
    let src = a.floats(&[5.0, 5.0]);
    // The PULL abstains, so that the PUSH behind it is a second joining.
    let pull = a.pull(0, dst);
    a.submit(pull);
    let d = a.push_pull(0, src, dst);
    a.submit(d);
    _rack.card.settle();
    let (bsrc, bdst) = (b.floats(&[2.0, 3.0]), b.buffer(8));
    let d = b.push_pull(0, bsrc, bdst);
    b.expect(d, Status::Ok);
    assert_eq!(a.wait_for(Status::Ok).contributors, 0b10);
    assert_bare(&a.wait_for(Status::Duplicate), 0);
    assert_eq!(a.read_floats(dst), [2.0, 3.0]);
}

fn key_or_length_differ(card: Card) {
    let (rack, mut a, mut b) = liar(card);
    let asrc = a.floats(&[1.0; 300]);
    let push = a.push(0, asrc);
    a.expect(push, Status::Ok);
    let bsrc = b.floats(&[1.0; 300]);
    let (short, long) = (Buffer { len: 1196, ..bsrc }, b.buffer(2048));
    let key = Descriptor {
        key: !push.key,
        ..b.push(0, bsrc)
    };
    assert_bare(&b.expect(key, Status::Mismatch), 0);
    let d = b.push(0, short);
    assert_bare(&b.expect(d, Status::Mismatch), 1);
    // Its first segment counted: all of the right one but the last is now a duplicate.
    let d = b.push(0, bsrc);
    assert_bare(&b.expect(d, Status::Duplicate), 0);
    let c = Descriptor {
        key: !push.key,
        ..b.pull(0, long)
    };
    assert_bare(&b.expect(c, Status::Mismatch), 0);
    assert_eq!(rack.counter::<CountersMismatchesLo>(a.tenant), 2 + 1 + 2);
}

fn stale_sequence_numbers(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(1, 2);
    let mut w = rack.worker(tenant, 0, Shape::default());
    let (src, dst) = (w.floats(&[1.0; 16]), w.buffer(64));
    let d = w.push_pull(6, src, dst);
    w.expect(d, Status::Ok);
    for old in [
        6,
        2,
        6u32.wrapping_sub(1 << 20),
        6u32.wrapping_sub(0x7fff_fffc),
    ] {
        let d = w.push(old, src);
        assert_bare(&w.expect(d, Status::StaleSeq), old);
        let d = w.pull(old, dst);
        assert_bare(&w.expect(d, Status::StaleSeq), old);
        let d = w.push_pull(old, src, dst);
        assert_bare(&w.expect(d, Status::StaleSeq), old);
    }
    // Other slots are not affected, and newer numbers go on, even far ahead.
    for new in [3, 10, 10 + 0x7fff_fff0] {
        let d = w.push_pull(new, src, dst);
        w.expect(d, Status::Ok);
    }
    rack.card.settle();
    assert_eq!(rack.counter::<CountersStaleLo>(tenant), 8);
}

fn pull_twice(card: Card) {
    let (_rack, mut a, mut b) = liar(card);
    let (asrc, adst) = (a.floats(&[1.0; 4]), a.buffer(16));
    let (bsrc, bdst) = (b.floats(&[2.0; 4]), b.buffer(16));
    let d = b.push(0, bsrc);
    b.expect(d, Status::Ok);
    let d = a.push_pull(0, asrc, adst);
    a.expect(d, Status::Ok);
    // The round is open for b alone.
    let d = a.pull(0, adst);
    assert_eq!(a.expect(d, Status::StaleSeq).seq, 0);
    let d = b.pull(0, bdst);
    b.expect(d, Status::Ok);
    let d = b.pull(0, bdst);
    assert_eq!(b.expect(d, Status::StaleSeq).seq, 0);
    assert_eq!(b.read_floats(bdst), [3.0; 4]);
}

fn tenant_off_and_worker_beyond_the_world(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(2, 2);
    let mut beyond = rack.worker(tenant, 2, Shape::default());
    let mut inside = rack.worker(tenant, 1, Shape::default());
    for w in [&mut beyond, &mut inside] {
        let src = w.floats(&[1.0; 4]);
        let d = w.push(0, src);
        let status = if w.rank == 2 {
            Status::TenantOff
        } else {
            Status::Ok
        };
        w.expect(d, status);
    }
    rack.card
        .set_at(tenant.index, TenantTableCtrl::default().with_workers(2));
    let src = inside.floats(&[1.0; 4]);
    let d = Descriptor {
        epoch: 99,
        ..inside.push(1, src)
    };
    assert_bare(&inside.expect(d, Status::TenantOff), 1);
    assert_eq!(rack.counter::<CountersRefusedLo>(tenant), 2);
}

/// Opens the window of a worker for addresses that are not mapped.
fn widen(rack: &Rack, w: &Worker) {
    rack.card
        .set_at(w.queue, QueueTableWinSizeLo::default().with_value(0));
    rack.card
        .set_at(w.queue, QueueTableWinSizeHi::default().with_value(0x10));
}

fn unmapped_payload(card: Card) {
    let (rack, mut a, mut b) = liar(card);
    widen(&rack, &a);
    let end = a.iova + a.memory.len();
    // The last page is mapped, the next is not: two good segments, then bad ones.
    let d = Descriptor {
        src: end - 2048,
        ..a.descriptor(Opcode::Push, 0, 4096)
    };
    let c = a.expect(d, Status::ReadError);
    assert_bare(&c, 2);
    // What was good counted, so that the other two can be made good.
    let src = a.floats(&[0.0; 512]);
    let rest = Descriptor {
        key: d.key,
        ..a.push(2, src)
    };
    a.expect(rest, Status::Ok);
    let dst = a.buffer(4096);
    let pull = Descriptor {
        key: d.key,
        ..a.pull(0, dst)
    };
    a.submit(pull);
    let (bsrc, bdst) = (b.floats(&[2.0; 1024]), b.buffer(4096));
    let d = Descriptor {
        key: d.key,
        ..b.push_pull(0, bsrc, bdst)
    };
    b.expect(d, Status::Ok);
    a.wait_for(Status::Ok);
    assert_eq!(a.read_floats(dst), [2.0; 1024]);
    assert_eq!(rack.counter::<CountersDmaErrorsLo>(a.tenant), 2);
}

fn unmapped_result(card: Card) {
    let (rack, mut a, mut b) = liar(card);
    widen(&rack, &a);
    let src = a.floats(&[1.0; 1024]);
    let d = Descriptor {
        dst: a.iova + a.memory.len() - 2048,
        ..a.push_pull(0, src, src)
    };
    a.submit(d);
    let (bsrc, bdst) = (b.floats(&[2.0; 1024]), b.buffer(4096));
    let d = b.push_pull(0, bsrc, bdst);
    b.expect(d, Status::Ok);
    assert_eq!(b.read_floats(bdst), [3.0; 1024]);
    let c = a.wait_for(Status::WriteError);
    assert_eq!((c.seq, c.crc, c.contributors), (3, 0, 0));
    let last = Buffer {
        iova: 0,
        offset: a.memory.len() - 2048,
        len: 2048,
    };
    assert_eq!(a.read_floats(last), [3.0; 512], "what could be written was");
    assert_eq!(rack.counter::<CountersDmaErrorsLo>(a.tenant), 1);
    // The card goes on.
    let d = a.push_pull(4, src, src);
    a.submit(d);
    let d = b.push_pull(4, bsrc, bdst);
    b.expect(d, Status::Ok);
    a.wait_for(Status::Ok);
}

fn a_failed_descriptor_does_not_stop_its_queue(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(1, 3);
    let mut w = rack.worker(tenant, 0, Shape::default());
    let src = w.floats(&[1.0; 100]);
    let dst = w.buffer(400);
    let mut expected = Vec::new();
    for seq in 0..20 {
        let good = w.push_pull(seq, src, dst);
        w.post(&Descriptor { length: 2, ..good });
        w.post(&good);
        expected.extend([(Status::BadLength, good.cid), (Status::Ok, good.cid)]);
    }
    w.ring();
    for (status, cid) in expected {
        assert_eq!(w.wait_for(status).cid, cid);
    }
}

/// While one tenant's workers send nothing but nonsense, another tenant's sums stay right.
fn another_tenant_is_not_disturbed(card: Card) {
    let mut rack = Rack::new(card);
    let honest = rack.tenant(3, 3);
    let mut good = rack.workers(honest);
    let tenant = rack.tenant(2, 3);
    let mut bad = rack.worker(tenant, 1, Shape::default());
    let junk = bad.words(&[0x7fc0_0000; 2048]);
    for round in 0..6 {
        // Sequence numbers, keys and addresses of the others.
        let base = bad.push(round * 8, junk);
        for d in [
            Descriptor {
                src: good[0].iova + 2 * PAGE + 64,
                ..base
            },
            Descriptor {
                opcode: Opcode::PushPull as u8,
                dst: good[1].iova + 2 * PAGE + 64,
                ..base
            },
            Descriptor {
                epoch: !base.epoch,
                ..base
            },
            Descriptor {
                length: LENGTH_MAX,
                ..base
            },
            base,
            Descriptor { key: 0, ..base },
            base,
        ] {
            bad.post(&d);
        }
        bad.ring();
        let mut dst = Vec::new();
        for w in &mut good {
            let src = w.floats(&[f32::from(w.rank) + 1.0; 2048]);
            let d = w.push_pull(round * 8, src, src);
            w.submit(d);
            dst.push(src);
        }
        for (w, dst) in good.iter_mut().zip(dst) {
            let c = w.wait_for(Status::Ok);
            assert_eq!(c.contributors, 0b111);
            assert!(
                w.read_floats(dst) == [6.0; 2048],
                "round {round}, worker {}",
                w.rank
            );
        }
        for status in [
            Status::OutOfWindow,
            Status::OutOfWindow,
            Status::StaleEpoch,
            Status::OutOfWindow,
            Status::Ok,
            Status::Mismatch,
            Status::Duplicate,
        ] {
            bad.wait_for(status);
        }
        // What it opened would otherwise hold up its next round.
        bad.tenant = rack.abort(bad.tenant);
    }
}
