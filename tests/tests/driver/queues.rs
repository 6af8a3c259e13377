// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Queue pairs of a card that works.

use std::time::Duration;

use phub_abi::regs::{Cmd, QueueTableCtrl, Register};
use phub_driver::{CardErrorCode, Error, QueueConfig};
use phub_model::Params;
use phub_sys::{EventFd, HugePages, Memory};
use phub_tests::fault::{Call, Event, Fault};

use crate::bench::*;

#[test]
fn gradients_are_summed() {
    let (_card, device) = device();
    let job = tenant(&device, 3);
    let mut workers: Vec<_> = (0..3)
        .map(|w| Worker::join(&device, &job, w).unwrap())
        .collect();
    // Rings of 4 entries go round often.
    for seq in 0..100 {
        for (rank, worker) in workers.iter_mut().enumerate() {
            worker.submit(rank as f32 + seq as f32, seq).unwrap();
        }
        for worker in &mut workers {
            assert_eq!(worker.result(), [3.0 * seq as f32 + 3.0; 16]);
        }
    }
}

#[test]
fn interrupts_come_to_their_queue_whoever_comes_and_goes() {
    let (card, device) = device();
    let job = tenant(&device, 2);
    let mut first = Worker::join(&device, &job, 0).unwrap();
    let mut second = Worker::join(&device, &job, 1).unwrap();
    assert!(
        first.event.drain().unwrap(),
        "a reconnected vector is signalled, as it may have lost one"
    );
    second.event.drain().unwrap();
    first.submit(1.0, 0).unwrap();
    assert!(!first.event.drain().unwrap());
    second.submit(2.0, 0).unwrap();
    for worker in [&mut first, &mut second] {
        assert!(worker.event.wait(Duration::from_secs(1)).unwrap());
        assert_eq!(worker.result(), [3.0; 16]);
    }
    drop(second);
    let mut second = Worker::join(&device, &job, 1).unwrap();
    first.event.drain().unwrap();
    second.event.drain().unwrap();
    first.submit(1.0, 1).unwrap();
    second.submit(2.0, 1).unwrap();
    assert!(first.event.drain().unwrap() && second.event.drain().unwrap());
    let (_, events) = card.take_events();
    let counts: Vec<_> = events
        .iter()
        .filter(|e| matches!(e, Event::Interrupts(_)))
        .collect();
    assert!(
        counts.iter().all(|e| **e == Event::Interrupts(65)),
        "{counts:?}"
    );
}

#[test]
fn a_queue_is_stopped_before_its_memory_goes() {
    let (card, device) = device();
    let job = tenant(&device, 2);
    let mut worker = Worker::join(&device, &job, 0).unwrap();
    worker.submit(1.0, 0).unwrap();
    let iova = worker.queue.iova();
    assert_eq!(card.mappings(), [(iova, ARENA)]);
    card.take_events();
    worker.queue.close().unwrap();
    let (_, events) = card.take_events();
    let steps: Vec<_> = events
        .into_iter()
        .filter(|e| !matches!(e, Event::Interrupts(_)))
        .collect();
    let expected = [
        Event::Write {
            offset: Cmd::OFFSET,
            value: Cmd::default().with_op(2).bits(),
        },
        Event::Write {
            offset: QueueTableCtrl::OFFSET,
            value: 0,
        },
        Event::Unmap(iova),
    ];
    assert_eq!(steps, expected);
    assert_eq!(card.mappings(), []);
}

#[test]
fn memory_is_free_when_the_queue_and_its_user_are() {
    let (card, device) = device();
    let job = tenant(&device, 2);
    let Worker {
        queue,
        sq,
        cq,
        memory,
        ..
    } = Worker::join(&device, &job, 0).unwrap();
    let inode = inode(&memory);
    drop((sq, cq, memory));
    assert!(is_mapped(inode));
    drop(queue);
    assert!(!is_mapped(inode));
    assert_eq!(card.mappings(), []);
}

#[test]
fn the_last_handle_disables_the_card() {
    let (card, device) = device();
    let job = tenant(&device, 1);
    let worker = Worker::join(&device, &job, 0).unwrap();
    drop(device);
    // The queue still works.
    let mut worker = worker;
    worker.submit(5.0, 0).unwrap();
    assert_eq!(worker.result(), [5.0; 16]);
    card.take_events();
    drop(worker);
    let (_, events) = card.take_events();
    let last = [
        Event::Write {
            offset: 0x20,
            value: 0,
        },
        Event::Interrupts(0),
    ];
    assert_eq!(events[events.len() - 2..], last);
    let device = open(&card).unwrap();
    assert_eq!(device.slots().unwrap(), []);
}

#[test]
fn a_wrong_doorbell_stops_its_queue_alone() {
    let (_card, device) = device();
    let job = tenant(&device, 1);
    let other = tenant(&device, 1);
    let bad = Worker::join(&device, &job, 0).unwrap();
    let mut good = Worker::join(&device, &other, 0).unwrap();
    let errors = device.error_event().unwrap();
    errors.drain().unwrap();
    bad.queue.ring_sq(4).unwrap();
    assert!(errors.wait(Duration::from_secs(1)).unwrap());
    let reported = device.take_errors().unwrap();
    assert_eq!(reported.len(), 1);
    assert_eq!(
        (reported[0].queue, reported[0].code),
        (bad.queue.index(), CardErrorCode::Doorbell)
    );
    assert_eq!(device.take_errors().unwrap(), []);
    assert_eq!(
        bad.queue.state().unwrap().error,
        Some(CardErrorCode::Doorbell)
    );
    good.submit(1.0, 0).unwrap();
    assert_eq!(good.result(), [1.0; 16]);
    assert_eq!(good.queue.state().unwrap().error, None);
    bad.queue.close().unwrap();
    let mut again = Worker::join(&device, &job, 0).unwrap();
    again.submit(2.0, 0).unwrap();
    assert_eq!(again.result(), [2.0; 16]);
}

#[test]
fn queues_run_out() {
    let card = golden(Params {
        queues: 2,
        ..Params::default()
    });
    let device = open(&card).unwrap();
    let job = tenant(&device, 4);
    let first = Worker::join(&device, &job, 0).unwrap();
    let _second = Worker::join(&device, &job, 1).unwrap();
    let error = Worker::join(&device, &job, 2).err().unwrap();
    assert!(matches!(error, Error::NoFreeQueue { queues: 2 }), "{error}");
    assert_eq!(card.mappings().len(), 2);
    drop(first);
    assert_eq!(Worker::join(&device, &job, 2).unwrap().queue.index(), 0);
}

#[test]
fn configurations_that_cannot_be_are_refused() {
    let (card, device) = device();
    let job = tenant(&device, 2);
    let event = || Some(EventFd::new().unwrap());
    type Change = fn(&mut QueueConfig);
    let changes: [(Change, &str); 10] = [
        (|c| c.worker = 2, "worker 2 of a tenant of 2"),
        (|c| c.sq_log2 = 0, "2^0 entries"),
        (|c| c.cq_log2 = 13, "2^13 entries"),
        (|c| c.sq_log2 = 77, "2^77 entries"),
        (|c| c.sq_offset = 0x1040, "multiples of 4096"),
        (|c| c.cq_offset = 0x1000, "overlap"),
        (|c| c.sq_log2 = 7, "overlap"),
        (|c| c.cq_offset = ARENA, "leaves"),
        (|c| c.sq_offset = u64::MAX - 0xfff, "leaves"),
        (
            |c| c.memory = c.memory.slice(0, 0x2100).unwrap(),
            "whole pages",
        ),
    ];
    for (change, text) in changes {
        let mut config = config(job.id, 0, event());
        change(&mut config);
        let error = device.create_queue(config).err().unwrap();
        assert!(
            matches!(&error, Error::BadConfig { what } if what.contains(text)),
            "{error}"
        );
    }
    // Rings as large as they get.
    let memory = Memory::new(2 * (64 << 12), HugePages::Prefer).unwrap();
    let largest = QueueConfig {
        sq_offset: 0,
        sq_log2: 12,
        cq_offset: 64 << 12,
        cq_log2: 12,
        memory,
        ..config(job.id, 0, None)
    };
    device.create_queue(largest).unwrap();
    assert_eq!(card.mappings(), []);
}

#[test]
fn a_queue_that_cannot_be_made_leaves_nothing() {
    let (card, device) = device();
    let job = tenant(&device, 1);
    for call in [Call::Map, Call::Interrupts] {
        card.break_call(call, Fault::Refuse);
        let error = Worker::join(&device, &job, 0).err().unwrap();
        assert!(matches!(error, Error::Pci(_)), "{error}");
        card.heal();
        assert_eq!(card.mappings(), []);
    }
    // The card refuses it: no such tenant, in its eyes.
    card.lie(QueueTableCtrl::OFFSET + 4, 4 << 8 | 1);
    let error = Worker::join(&device, &job, 0).err().unwrap();
    assert!(
        matches!(
            error,
            Error::QueueError {
                queue: 0,
                code: CardErrorCode::QueueConfig
            }
        ),
        "{error}"
    );
    card.heal();
    assert_eq!(card.mappings(), []);
    assert_eq!(Worker::join(&device, &job, 0).unwrap().queue.index(), 0);
}

#[test]
fn old_completions_are_no_completions() {
    let (_card, device) = device();
    let job = tenant(&device, 1);
    let mut config = config(job.id, 0, None);
    // What an earlier queue may have left.
    config.memory.write_at(0, &[0xff; ARENA as usize]).unwrap();
    let memory = config.memory.clone();
    config.cq_log2 = 12;
    config.sq_log2 = 6;
    let error = device.create_queue(config).err().unwrap();
    assert!(matches!(error, Error::BadConfig { .. }), "{error}");
    let config = QueueConfig {
        memory: memory.clone(),
        ..crate::bench::config(job.id, 0, None)
    };
    let mut completions = phub_driver::ring::CompletionQueue::new(&memory, 0x2000, 2).unwrap();
    let _queue = device.create_queue(config).unwrap();
    assert_eq!(completions.pop(), None);
}

#[test]
fn many_threads_share_a_device() {
    let (card, device) = device();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let device = device.clone();
            scope.spawn(move || {
                for round in 0..10u32 {
                    let job = tenant(&device, 1);
                    let mut worker = Worker::join(&device, &job, 0).unwrap();
                    for seq in 0..20 {
                        worker.submit((thread * seq) as f32, seq).unwrap();
                        assert_eq!(worker.result(), [(thread * seq) as f32; 16]);
                    }
                    if round % 2 == 0 {
                        device.abort_tenant(job.id).unwrap();
                    }
                    let (counters, _) = (device.counters(job.id).unwrap(), device.slots().unwrap());
                    assert_eq!(counters.segments_in, 20);
                    drop(worker);
                    device.delete_tenant(job.id).unwrap();
                }
            });
        }
    });
    assert_eq!(card.mappings(), []);
}
