// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Rings: wrap-around, full queues, completion credit, doorbells that lie, memory that is not there.

use phub_abi::regs::{
    DoorbellsCqHead, DoorbellsSqTail, QueueTableCqBaseHi, QueueTableCtrl, QueueTablePointers,
    QueueTableSqBaseHi, QueueTableStatus, QueueTableVector,
};
use phub_abi::{Descriptor, Flags, Status};
use phub_tests::card::Card;
use phub_tests::on_every_card;
use phub_tests::rack::{Rack, Shape, Worker};

on_every_card!(
    every_ring_size_wraps,
    a_full_submission_ring,
    completions_wait_for_credit,
    completion_credit_of_the_smallest_ring,
    phase_flips_each_round,
    sq_head_follows,
    submission_doorbell_out_of_range,
    completion_doorbell_out_of_range,
    unreadable_submission_ring,
    unwritable_completion_ring,
    bad_queue_configurations,
    doorbells_of_unknown_queues,
);

const ERR_DOORBELL: u32 = 1;
const ERR_SQ_READ: u32 = 2;
const ERR_CQ_WRITE: u32 = 3;
const ERR_QUEUE_CONFIG: u32 = 4;

fn lone(rack: &mut Rack, sq_log2: u32, cq_log2: u32) -> Worker {
    let tenant = rack.tenant(1, 2);
    rack.worker(
        tenant,
        0,
        Shape {
            sq_log2,
            cq_log2,
            ..Shape::default()
        },
    )
}

/// One exchange of a lone worker.
fn ping(w: &mut Worker, seq: u32) -> Descriptor {
    let src = w.floats(&[seq as f32; 4]);
    w.push_pull(seq, src, src)
}

/// The queue still works.
fn assert_alive(w: &mut Worker, seq: u32) {
    let d = ping(w, seq);
    w.expect(d, Status::Ok);
}

fn every_ring_size_wraps(card: Card) {
    let mut rack = Rack::new(card);
    for (sq, cq) in [(1, 1), (1, 4), (4, 1), (2, 3), (3, 2), (6, 6), (12, 12)] {
        let mut w = lone(&mut rack, sq, cq);
        let count = 3 * (1u32 << sq.max(cq)).min(30) + 5;
        for seq in 0..count {
            let d = ping(&mut w, seq);
            let c = w.expect(d, Status::Ok);
            assert_eq!((c.seq, u32::from(c.sq_head)), (seq, (seq + 1) % (1 << sq)));
        }
    }
}

fn a_full_submission_ring(card: Card) {
    let mut rack = Rack::new(card);
    let mut w = lone(&mut rack, 5, 6);
    for round in 0..4 {
        let cids: Vec<_> = (0..31)
            .map(|i| {
                let d = ping(&mut w, round * 31 + i);
                w.post(&d);
                d.cid
            })
            .collect();
        w.ring();
        for cid in cids {
            assert_eq!(w.wait_for(Status::Ok).cid, cid);
        }
    }
}

/// More work than completion entries: the card waits until the host has read some.
fn completions_wait_for_credit(card: Card) {
    let mut rack = Rack::new(card);
    let mut w = lone(&mut rack, 6, 2);
    let cids: Vec<_> = (0..40)
        .map(|seq| {
            let d = ping(&mut w, seq);
            w.post(&d);
            d.cid
        })
        .collect();
    w.ring();
    rack.card.settle();
    let mut seen = Vec::new();
    while let Some(c) = w.peek() {
        seen.push(c.cid);
    }
    assert_eq!(seen, cids[..3], "a ring of four holds three");
    rack.card.settle();
    assert!(w.peek().is_none(), "nothing more without credit");
    w.ring_cq();
    for cid in &cids[3..] {
        assert_eq!(w.wait_for(Status::Ok).cid, *cid);
    }
}

fn completion_credit_of_the_smallest_ring(card: Card) {
    let mut rack = Rack::new(card);
    let mut w = lone(&mut rack, 4, 1);
    for seq in 0..12 {
        let d = ping(&mut w, seq);
        w.post(&d);
    }
    w.ring();
    for seq in 0..12 {
        assert_eq!(w.wait_for(Status::Ok).seq, seq);
    }
}

fn phase_flips_each_round(card: Card) {
    let mut rack = Rack::new(card);
    let mut w = lone(&mut rack, 3, 2);
    for seq in 0..13 {
        let d = ping(&mut w, seq);
        let c = w.expect(d, Status::Ok);
        assert_eq!(c.phase, (seq / 4) % 2 == 0, "completion {seq}");
    }
}

fn sq_head_follows(card: Card) {
    let mut rack = Rack::new(card);
    let mut w = lone(&mut rack, 3, 3);
    for seq in 0..20 {
        let d = ping(&mut w, seq);
        let c = w.expect(d, Status::Ok);
        let pointers = rack.card.get_at::<QueueTablePointers>(w.queue);
        assert_eq!(u32::from(c.sq_head), (seq + 1) % 8);
        assert_eq!(
            (pointers.sq_head(), pointers.cq_tail()),
            ((seq + 1) % 8, (seq + 1) % 8)
        );
    }
}

/// Checks that a queue stopped for `code`, that it was reported once, and that another goes on.
#[track_caller]
fn assert_stopped(rack: &Rack, w: &mut Worker, other: &mut Worker, code: u32) {
    let queue = w.queue;
    rack.card.until("queue stopped", |card| {
        card.get_at::<QueueTableStatus>(queue).error()
    });
    assert_eq!(rack.card.get_at::<QueueTableStatus>(queue).code(), code);
    assert_eq!(rack.error(), Some((code, queue)));
    assert_eq!(rack.error(), None);
    assert_alive(other, 1000);
    let d = ping(w, 900);
    w.submit(d);
    rack.card.settle();
    assert_eq!(w.poll(), None, "a stopped queue does nothing");
    // It begins anew when it is stopped and enabled again.
    w.disable();
    w.enable();
    assert!(!rack.card.get_at::<QueueTableStatus>(queue).error());
    assert_alive(w, 2000);
    assert_alive(other, 2000);
}

fn submission_doorbell_out_of_range(card: Card) {
    let mut rack = Rack::new(card);
    for tail in [16, 17, 0xffff] {
        let (mut w, mut other) = (lone(&mut rack, 4, 4), lone(&mut rack, 4, 4));
        assert_alive(&mut w, 0);
        rack.card
            .set_at(w.queue, DoorbellsSqTail::default().with_value(tail));
        assert_stopped(&rack, &mut w, &mut other, ERR_DOORBELL);
    }
}

fn completion_doorbell_out_of_range(card: Card) {
    let mut rack = Rack::new(card);
    // Outside the ring; past the tail; behind the head.
    for head in [16, 0x8000, 3, 1] {
        let (mut w, mut other) = (lone(&mut rack, 4, 4), lone(&mut rack, 4, 4));
        assert_alive(&mut w, 0);
        assert_alive(&mut w, 1);
        rack.card
            .set_at(w.queue, DoorbellsCqHead::default().with_value(head));
        assert_stopped(&rack, &mut w, &mut other, ERR_DOORBELL);
    }
}

fn unreadable_submission_ring(card: Card) {
    let mut rack = Rack::new(card);
    let (mut w, mut other) = (lone(&mut rack, 4, 4), lone(&mut rack, 4, 4));
    rack.card
        .set_at(w.queue, QueueTableSqBaseHi::default().with_value(0x7777));
    let d = ping(&mut w, 0);
    w.submit(d);
    rack.card.until("queue stopped", |card| {
        card.get_at::<QueueTableStatus>(w.queue).error()
    });
    rack.card.set_at(
        w.queue,
        QueueTableSqBaseHi::default().with_value((w.iova >> 32) as u32),
    );
    assert_stopped(&rack, &mut w, &mut other, ERR_SQ_READ);
}

fn unwritable_completion_ring(card: Card) {
    let mut rack = Rack::new(card);
    let (mut w, mut other) = (lone(&mut rack, 4, 4), lone(&mut rack, 4, 4));
    rack.card
        .set_at(w.queue, QueueTableCqBaseHi::default().with_value(0x7777));
    let d = ping(&mut w, 0);
    w.submit(d);
    rack.card.until("queue stopped", |card| {
        card.get_at::<QueueTableStatus>(w.queue).error()
    });
    rack.card.set_at(
        w.queue,
        QueueTableCqBaseHi::default().with_value((w.iova >> 32) as u32),
    );
    assert_stopped(&rack, &mut w, &mut other, ERR_CQ_WRITE);
}

fn bad_queue_configurations(card: Card) {
    let params = card.params;
    let mut rack = Rack::new(card);
    let mut other = lone(&mut rack, 4, 4);
    let (queue, good) = (
        params.queues - 1,
        QueueTableCtrl::default()
            .with_sq_log2(4)
            .with_cq_log2(4)
            .with_enable(true),
    );
    let mut bad = vec![
        good.with_sq_log2(0),
        good.with_sq_log2(13),
        good.with_cq_log2(0),
        good.with_cq_log2(15),
    ];
    if params.tenants < 64 {
        bad.push(good.with_tenant(params.tenants));
    }
    for ctrl in bad {
        rack.card.set_at(queue, ctrl);
        rack.card.until("queue refused", |card| {
            card.get_at::<QueueTableStatus>(queue).error()
        });
        assert_eq!(
            rack.card.get_at::<QueueTableStatus>(queue).code(),
            ERR_QUEUE_CONFIG,
            "{ctrl:?}"
        );
        assert!(!rack.card.get_at::<QueueTableCtrl>(queue).enable());
        assert_eq!(rack.error(), Some((ERR_QUEUE_CONFIG, queue)));
    }
    rack.card.set_at(
        queue,
        QueueTableVector::default().with_value(params.vectors()),
    );
    rack.card.set_at(queue, good);
    rack.card.until("vector refused", |card| {
        card.get_at::<QueueTableStatus>(queue).error()
    });
    assert_alive(&mut other, 0);
}

fn doorbells_of_unknown_queues(card: Card) {
    let mut rack = Rack::new(card);
    let mut w = lone(&mut rack, 4, 4);
    for queue in 1..64 {
        rack.card
            .set_at(queue, DoorbellsSqTail::default().with_value(1));
        rack.card
            .set_at(queue, DoorbellsCqHead::default().with_value(1));
    }
    // Nobody enabled them, so that nothing happens, not even an error.
    rack.card.settle();
    assert_eq!(rack.error(), None);
    let d = ping(&mut w, 0);
    w.expect(
        Descriptor {
            flags: Flags::MEAN,
            ..d
        },
        Status::Ok,
    );
}
