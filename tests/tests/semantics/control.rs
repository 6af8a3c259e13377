// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The host's side: identity, enable, abort, queue stop, interrupts, the debug window.

use std::os::fd::AsFd;
use std::time::Duration;

use phub_abi::regs::*;
use phub_abi::{ABI_MAJOR, Descriptor, Flags, MAGIC};
use phub_pci::PciError;
use phub_sys::EventFd;
use phub_tests::card::Card;
use phub_tests::on_every_card;
use phub_tests::rack::{Rack, Shape, Worker};

use phub_abi::Status as Outcome;

on_every_card!(
    identity,
    scratch_and_unknown_registers,
    tables_keep_what_is_written,
    abort_names_who_is_missing,
    abort_of_everything_held,
    abort_leaves_other_tenants_alone,
    stop_forgets_a_queue,
    commands_out_of_range,
    disable_forgets,
    reset_is_power_on,
    interrupt_when_asked_or_failed,
    interrupts_coalesce,
    error_interrupt,
    debug_window,
    accesses_out_of_range,
    time_passes,
);

fn identity(card: Card) {
    let p = card.params;
    assert_eq!(card.get::<Magic>().value(), MAGIC);
    assert_eq!(card.get::<AbiVersion>().major(), u32::from(ABI_MAJOR));
    let caps = card.get::<Caps>();
    assert!(caps.fp32_sum() && caps.fp32_mean() && caps.crc());
    let path = card.get::<ParamDatapath>();
    assert_eq!(
        (path.lanes(), 1 << path.seg_log2(), path.vectors()),
        (p.lanes, p.seg_bytes, p.vectors())
    );
    assert_eq!(card.get::<ParamSlots>().value(), p.slots);
    let tenants = card.get::<ParamTenants>();
    assert_eq!(
        (tenants.tenants(), tenants.workers()),
        (p.tenants, p.workers)
    );
    let queues = card.get::<ParamQueues>();
    assert_eq!(
        (queues.queues(), queues.desc_depth()),
        (p.queues, p.desc_depth)
    );
    assert_eq!(card.pci.vectors(), p.vectors() as usize);
}

fn scratch_and_unknown_registers(card: Card) {
    for value in [0xdead_beef, 0, u32::MAX] {
        card.set(Scratch::from_bits(value));
        assert_eq!(card.get::<Scratch>().bits(), value);
    }
    for offset in [0x048, 0x0f4, 0xffc, 0x6000, 0xf_fffc] {
        card.pci.bar_write(offset, u32::MAX).unwrap();
        assert_eq!(card.pci.bar_read(offset).unwrap(), 0, "offset {offset:#x}");
    }
    // Read-only registers stay.
    card.set(Magic::from_bits(1));
    assert_eq!(card.get::<Magic>().value(), MAGIC);
}

fn tables_keep_what_is_written(card: Card) {
    let last = card.params.queues - 1;
    for queue in [0, last] {
        for (offset, value) in [
            (0x08, 0x1234_5000),
            (0x0c, 7),
            (0x18, 0xfff0_0000),
            (0x24, 0x8000_0000),
            (0x28, 5),
        ] {
            let at = QueueTableCtrl::OFFSET + queue * QueueTableCtrl::STRIDE + offset;
            card.pci.bar_write(at, value + queue).unwrap();
            assert_eq!(
                card.pci.bar_read(at).unwrap(),
                value + queue,
                "queue {queue}, offset {offset:#x}"
            );
        }
    }
    for tenant in [0, card.params.tenants - 1] {
        card.set_at(tenant, TenantTableEpoch::default().with_value(77 + tenant));
        card.set_at(tenant, TenantTableTokenHi::default().with_value(!tenant));
    }
    for tenant in [0, card.params.tenants - 1] {
        assert_eq!(card.get_at::<TenantTableEpoch>(tenant).value(), 77 + tenant);
        assert_eq!(card.get_at::<TenantTableTokenHi>(tenant).value(), !tenant);
    }
}

fn submit_push_pull(w: &mut Worker, seq: u32, words: usize) {
    let src = w.floats(&vec![f32::from(w.rank); words]);
    let d = w.push_pull(seq, src, src);
    w.submit(d);
}

fn abort_names_who_is_missing(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(4, 3);
    let mut workers = rack.workers(tenant);
    // Workers 1 and 3 push three segments; 0 and 2 never come.
    for rank in [1, 3] {
        submit_push_pull(&mut workers[rank], 0, 600);
    }
    rack.card.settle();
    assert!(rack.slot(tenant.slot_base).state.open());
    let next = rack.abort(tenant);
    assert_eq!(next.epoch, tenant.epoch + 1);
    for rank in [1, 3] {
        let c = workers[rank].wait_for(Outcome::Aborted);
        assert_eq!((c.seq, c.bytes, c.epoch), (0, 0, tenant.epoch));
        assert_eq!(
            (c.contributors, c.count),
            (0b1010, 2),
            "who was there; the others are missing"
        );
    }
    for slot in 0..8 {
        let state = rack.slot(tenant.slot_base + slot).state;
        assert!(state.fresh() && !state.open(), "slot {slot}: {state:?}");
    }
    assert_eq!(rack.counter::<CountersAbortsLo>(tenant), 1);
    // The old epoch is not accepted any more, the new one works from any sequence number.
    submit_push_pull(&mut workers[0], 0, 600);
    assert_eq!(workers[0].wait_for(Outcome::StaleEpoch).epoch, next.epoch);
    for w in &mut workers {
        w.tenant = next;
        submit_push_pull(w, 0, 600);
    }
    for w in &mut workers {
        assert_eq!(w.wait_for(Outcome::Ok).count, 4);
    }
}

fn abort_of_everything_held(card: Card) {
    let depth = card.params.desc_depth;
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(2, 3);
    let mut w = rack.worker(tenant, 0, Shape::default());
    let src = w.floats(&[1.0; 16]);
    // The first two find slots and wait for worker 1; a bad one and many more stand behind them.
    let first = w.push(0, src);
    w.post(&first);
    let second = w.push_pull(1, src, src);
    w.post(&second);
    w.post(&Descriptor {
        length: 5,
        ..second
    });
    let more = depth + 8;
    for seq in 2..2 + more {
        let d = w.push_pull(seq, src, src);
        w.post(&d);
    }
    w.ring();
    assert_eq!(w.wait_for(Outcome::Ok).cid, first.cid);
    rack.card.settle();
    let next = rack.abort(tenant);
    let c = w.wait_for(Outcome::Aborted);
    assert_eq!((c.seq, c.contributors, c.cid), (1, 1, second.cid));
    w.wait_for(Outcome::BadLength);
    let mut stale = 0;
    for seq in 2..2 + more {
        let c = w.wait();
        assert_eq!(c.seq, seq);
        if c.status == Outcome::StaleEpoch.code() {
            stale += 1;
            assert_eq!((c.epoch, c.contributors), (next.epoch, 0));
        } else {
            assert_eq!(c.status, Outcome::Aborted.code());
            assert_eq!(
                stale, 0,
                "what the card held comes before what was still in the ring"
            );
            assert_eq!(c.epoch, tenant.epoch);
        }
    }
    assert!(stale > 0, "the ring held more than the card");
}

fn abort_leaves_other_tenants_alone(card: Card) {
    let mut rack = Rack::new(card);
    let (doomed, other) = (rack.tenant(2, 3), rack.tenant(2, 3));
    let mut lone = rack.worker(doomed, 0, Shape::default());
    let mut pair = rack.workers_with(
        other,
        Shape {
            buffers: 1 << 20,
            ..Shape::default()
        },
    );
    submit_push_pull(&mut lone, 0, 100);
    // In the middle of a large exchange, and before one of its workers has come.
    let dst: Vec<_> = pair
        .iter_mut()
        .map(|w| w.floats(&vec![1.5 + f32::from(w.rank); 50_000]))
        .collect();
    let d = pair[0].push_pull(0, dst[0], dst[0]);
    pair[0].submit(d);
    rack.abort(doomed);
    let d = pair[1].push_pull(0, dst[1], dst[1]);
    pair[1].submit(d);
    let again = rack.abort(doomed);
    assert_eq!(again.epoch, doomed.epoch + 2);
    lone.wait_for(Outcome::Aborted);
    for (w, dst) in pair.iter_mut().zip(dst) {
        w.wait_for(Outcome::Ok);
        assert!(w.read_floats(dst) == vec![4.0; 50_000]);
    }
    assert_eq!(
        rack.card.get_at::<TenantTableEpoch>(other.index).value(),
        other.epoch
    );
}

fn stop_forgets_a_queue(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(2, 3);
    let mut workers = rack.workers(tenant);
    for seq in 0..4 {
        submit_push_pull(&mut workers[0], seq, 16);
    }
    rack.card.settle();
    let before = workers[0].all_buffers();
    workers[0].disable();
    // Its memory is not touched from here on, even when the rounds complete.
    for seq in 0..4 {
        submit_push_pull(&mut workers[1], seq, 16);
        assert_eq!(workers[1].wait_for(Outcome::Ok).contributors, 0b11);
    }
    rack.card.settle();
    assert_eq!(workers[0].poll(), None);
    assert_eq!(workers[0].all_buffers(), before);
    // A second stop changes nothing; after a new start the queue pulls what it had joined.
    workers[0].disable();
    workers[0].enable();
    let dst = workers[0].buffer(64);
    for seq in 0..4 {
        let d = workers[0].pull(seq, dst);
        workers[0].expect(d, Outcome::Ok);
        assert_eq!(workers[0].read_floats(dst), [1.0; 16]);
    }
}

fn commands_out_of_range(card: Card) {
    let (tenants, queues) = (card.params.tenants, card.params.queues);
    let rack = Rack::new(card);
    for (op, index, refused) in [
        (0, 0, true),
        (3, 0, true),
        (255, 0, true),
        (1, 0, false),
        (2, 0, false),
        (1, tenants, true),
        (2, queues, true),
    ] {
        assert_eq!(
            rack.card.command(op, index),
            refused,
            "command {op} of {index}"
        );
    }
}

fn disable_forgets(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(2, 3);
    let mut w = rack.worker(tenant, 0, Shape::default());
    submit_push_pull(&mut w, 0, 100);
    rack.card.settle();
    rack.card.set(Ctrl::default());
    rack.card
        .until("disabled", |card| !card.get::<Status>().ready());
    assert!(!rack.card.get_at::<QueueTableCtrl>(w.queue).enable());
    rack.card.set(Ctrl::default().with_enable(true));
    rack.card
        .until("ready", |card| card.get::<Status>().ready());
    assert_eq!(rack.counter::<CountersSegmentsInLo>(tenant), 0);
    assert!(rack.slot(tenant.slot_base).state.fresh());
    assert_eq!(w.poll(), None);
    // Everything set up anew works.
    let tenant = rack.tenant(1, 2);
    let mut w = rack.worker(tenant, 0, Shape::default());
    submit_push_pull(&mut w, 0, 100);
    w.wait_for(Outcome::Ok);
}

fn reset_is_power_on(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(2, 3);
    let mut w = rack.worker(tenant, 0, Shape::default());
    submit_push_pull(&mut w, 0, 100);
    rack.card.set(Scratch::default().with_value(9));
    rack.card.pci.reset().unwrap();
    assert_eq!(rack.card.get::<Scratch>().value(), 0);
    assert!(!rack.card.get::<Status>().ready());
    assert!(!rack.card.get_at::<QueueTableCtrl>(w.queue).enable());
    let mut rack = Rack::new(rack.card);
    // DMA mappings stayed, so that the queue before stands in the way of its old address only.
    rack.card.pci.dma_unmap(w.iova, w.memory.len()).unwrap();
    let tenant = rack.tenant(1, 2);
    let mut w = rack.worker(tenant, 0, Shape::default());
    submit_push_pull(&mut w, 0, 100);
    w.wait_for(Outcome::Ok);
}

/// Eventfds on all vectors.
fn eventfds(card: &Card) -> Vec<EventFd> {
    let fds: Vec<_> = (0..card.pci.vectors())
        .map(|_| EventFd::new().unwrap())
        .collect();
    card.pci
        .set_interrupts(&fds.iter().map(|fd| fd.as_fd()).collect::<Vec<_>>())
        .unwrap();
    fds
}

/// Interrupts since the last call.
fn raised(card: &Card, fd: &EventFd) -> u64 {
    card.settle();
    let mut count = [0; 8];
    match rustix::io::read(fd, &mut count) {
        Ok(_) => u64::from_ne_bytes(count),
        Err(error) => {
            assert_eq!(error, rustix::io::Errno::AGAIN);
            0
        }
    }
}

fn interrupt_when_asked_or_failed(card: Card) {
    let mut rack = Rack::new(card);
    let fds = eventfds(&rack.card);
    let tenant = rack.tenant(1, 3);
    let mut workers = [
        rack.worker(tenant, 0, Shape::default()),
        rack.worker(tenant, 0, Shape::default()),
    ];
    let src = workers[1].floats(&[1.0; 4]);
    let d = workers[1].push_pull(0, src, src);
    workers[1].expect(d, Outcome::Ok);
    assert_eq!(raised(&rack.card, &fds[2]), 0, "nobody asked");
    let d = Descriptor {
        flags: Flags::IRQ,
        ..workers[1].push_pull(1, src, src)
    };
    workers[1].submit(d);
    rack.card.until("interrupt", |card| {
        card.relax();
        fds[2].wait(Duration::ZERO).unwrap()
    });
    let c = workers[1]
        .peek()
        .expect("the completion is there before its interrupt");
    assert_eq!(c.status, Outcome::Ok.code());
    workers[1].ring_cq();
    assert_eq!(
        raised(&rack.card, &fds[2]),
        0,
        "one completion, one interrupt"
    );
    let d = Descriptor {
        length: 1,
        ..workers[1].push(2, src)
    };
    workers[1].expect(d, Outcome::BadLength);
    assert_eq!(raised(&rack.card, &fds[2]), 1, "a failure always tells");
    for (vector, fd) in fds.iter().enumerate().filter(|(v, _)| *v != 2) {
        assert!(!fd.wait(Duration::ZERO).unwrap(), "vector {vector}");
    }
    // Disconnected.
    rack.card.pci.set_interrupts(&[]).unwrap();
    let d = Descriptor {
        flags: Flags::IRQ,
        ..workers[1].push_pull(3, src, src)
    };
    workers[1].expect(d, Outcome::Ok);
    assert_eq!(raised(&rack.card, &fds[2]), 0);
}

fn interrupts_coalesce(card: Card) {
    let mut rack = Rack::new(card);
    let fds = eventfds(&rack.card);
    let tenant = rack.tenant(1, 3);
    let mut w = rack.worker(tenant, 0, Shape::default());
    let src = w.floats(&[1.0; 4]);
    let run = |w: &mut Worker, seqs: std::ops::Range<u32>| {
        let count = seqs.len();
        for seq in seqs {
            let d = Descriptor {
                flags: Flags::IRQ,
                ..w.push_pull(seq, src, src)
            };
            w.post(&d);
        }
        w.ring();
        for _ in 0..count {
            w.wait_for(Outcome::Ok);
        }
        raised(&rack.card, &fds[1])
    };
    w.card()
        .set(IrqCoalesce::default().with_count(8).with_timeout(0xff_ffff));
    let some = run(&mut w, 0..24);
    assert!(
        (1..=3).contains(&some),
        "24 completions, one interrupt for each eight: {some}"
    );
    // Fewer than the count: the timeout brings it.
    w.card()
        .set(IrqCoalesce::default().with_count(200).with_timeout(100));
    let some = run(&mut w, 24..27);
    assert!((1..=3).contains(&some), "a timeout: {some}");
    w.card().set(IrqCoalesce::default().with_count(1));
    let some = run(&mut w, 27..28);
    assert_eq!(some, 1);
}

fn error_interrupt(card: Card) {
    let mut rack = Rack::new(card);
    let fds = eventfds(&rack.card);
    let tenant = rack.tenant(1, 3);
    let w = rack.worker(tenant, 0, Shape::default());
    rack.card
        .set_at(w.queue, DoorbellsSqTail::default().with_value(0x1000));
    assert_eq!(raised(&rack.card, &fds[0]), 1);
    assert_eq!(rack.error(), Some((1, w.queue)));
}

fn debug_window(card: Card) {
    let mut rack = Rack::new(card);
    rack.tenant(1, 2);
    let tenant = rack.tenant(5, 2);
    let mut workers = rack.workers(tenant);
    let seq = 0x8000_0006;
    let at = tenant.slot_base + 2;
    assert!(rack.slot(at).state.fresh());
    let key = {
        let w = &mut workers[3];
        let src = w.floats(&[1.0; 50]);
        let d = w.push(seq, src);
        w.expect(d, Outcome::Ok);
        let src = workers[1].floats(&[1.0; 50]);
        let d = Descriptor {
            flags: Flags::WAIVE,
            ..workers[1].push(seq, src)
        };
        workers[1].expect(d, Outcome::Ok);
        d.key
    };
    let dst = workers[4].buffer(200);
    let d = workers[4].pull(seq, dst);
    workers[4].submit(d);
    rack.card.settle();
    let slot = rack.slot(at);
    assert!(slot.state.open() && !slot.state.complete() && !slot.state.fresh());
    assert_eq!(
        (
            slot.state.tenant(),
            slot.state.workers(),
            slot.state.pending()
        ),
        (tenant.index, 5, 0)
    );
    assert_eq!((slot.seq, slot.key, slot.bytes), (seq, key, 200));
    assert_eq!(
        (slot.joined, slot.contributed, slot.left),
        (0b11010, 0b01010, 0b00010)
    );
    // The others come: complete until worker 3 has pulled.
    for rank in [0, 2] {
        submit_push_pull(&mut workers[rank], seq, 50);
    }
    for rank in [0, 2, 4] {
        workers[rank].wait_for(Outcome::Ok);
    }
    rack.card.settle();
    let slot = rack.slot(at);
    assert!(slot.state.open() && slot.state.complete());
    assert_eq!(
        (slot.joined, slot.contributed, slot.left),
        (0b11111, 0b01111, 0b10111)
    );
    let dst = workers[3].buffer(200);
    let d = workers[3].pull(seq, dst);
    workers[3].expect(d, Outcome::Ok);
    rack.card.settle();
    let slot = rack.slot(at);
    assert!(!slot.state.open() && !slot.state.fresh());
    assert_eq!(slot.seq, seq);
    assert!(
        rack.slot(at + 1).state.fresh(),
        "the slot beside it was not used"
    );
}

fn accesses_out_of_range(card: Card) {
    let bytes = card.pci.bar_bytes();
    for offset in [bytes, bytes + 4, 2, 0x21, u32::MAX] {
        assert!(
            matches!(card.pci.bar_read(offset), Err(PciError::OutOfRange { .. })),
            "read at {offset:#x}"
        );
        assert!(
            matches!(
                card.pci.bar_write(offset, 0),
                Err(PciError::OutOfRange { .. })
            ),
            "write at {offset:#x}"
        );
    }
    let fds: Vec<_> = (0..=card.pci.vectors())
        .map(|_| EventFd::new().unwrap())
        .collect();
    let all: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    assert!(matches!(
        card.pci.set_interrupts(&all),
        Err(PciError::Vectors { .. })
    ));
}

fn time_passes(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(1, 3);
    let mut w = rack.worker(tenant, 0, Shape::default());
    let now = |card: &Card| {
        u64::from(card.get::<CycleLo>().value()) | u64::from(card.get::<CycleHi>().value()) << 32
    };
    let before = now(&rack.card);
    submit_push_pull(&mut w, 0, 500);
    let first = w.wait_for(Outcome::Ok).timestamp;
    submit_push_pull(&mut w, 2, 500);
    let second = w.wait_for(Outcome::Ok).timestamp;
    let after = now(&rack.card);
    assert!(
        before <= first && first < second && second <= after,
        "{before} {first} {second} {after}"
    );
}
