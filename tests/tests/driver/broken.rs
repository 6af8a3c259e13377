// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Cards that do not work: every call ends in time, in an error that says why, and memory stays safe.

use std::sync::Arc;
use std::time::Duration;

use phub_abi::regs::*;
use phub_driver::{Command, Error, Result, TenantConfig};
use phub_model::Params;
use phub_pci::PciFunction;
use phub_sim::{AxiConfig, Build};
use phub_tests::card::Card;
use phub_tests::fault::{Call, Event, Fault, FaultCard};

use crate::bench::*;

fn error_of(break_it: impl FnOnce(&FaultCard)) -> Error {
    let card = golden(Params::default());
    break_it(&card);
    bounded(|| open(&card).err().unwrap())
}

#[test]
fn bring_up_names_what_is_wrong() {
    let error = error_of(|c| c.lie(Magic::OFFSET, 0x1234_5678));
    assert!(
        matches!(
            error,
            Error::WrongMagic {
                found: 0x1234_5678,
                ..
            }
        ),
        "{error}"
    );
    let error = error_of(|c| c.lie(Magic::OFFSET, u32::MAX));
    assert!(matches!(error, Error::CardGone { .. }), "{error}");
    let error = error_of(|c| c.lie(AbiVersion::OFFSET, 2 << 16 | 1));
    assert!(
        matches!(
            error,
            Error::AbiMismatch {
                major: 2,
                minor: 1,
                ..
            }
        ),
        "{error}"
    );
    let error = error_of(|c| c.lie(ParamTenants::OFFSET, 100));
    assert!(
        matches!(&error, Error::BadIdentity { what, .. } if what == "100 tenants"),
        "{error}"
    );
    let error = error_of(|c| c.ignore_writes(Ctrl::OFFSET));
    assert!(
        matches!(
            error,
            Error::NotReady {
                state: "ready",
                fatal: 0,
                ..
            }
        ),
        "{error}"
    );
    let error = error_of(|c| {
        c.lie(Status::OFFSET, Status::default().with_fatal(true).bits());
        c.lie(Fatal::OFFSET, 9);
    });
    assert!(matches!(error, Error::NotReady { fatal: 9, .. }), "{error}");
    let error = error_of(|c| c.break_all(Fault::AllOnes));
    assert!(matches!(error, Error::CardGone { .. }), "{error}");
    let error = error_of(|c| c.break_all(Fault::Gone));
    assert!(matches!(error, Error::CardGone { .. }), "{error}");
    let error = error_of(|c| c.break_call(Call::Reset, Fault::Timeout));
    assert!(matches!(error, Error::Pci(_)), "{error}");
}

#[test]
fn a_newer_minor_version_is_welcome() {
    let card = golden(Params::default());
    card.lie(AbiVersion::OFFSET, 1 << 16 | 7);
    assert_eq!(open(&card).unwrap().identity().abi_minor, 7);
}

#[test]
fn a_card_that_hangs_is_reset_before_its_memory_goes() {
    let (card, device) = device();
    let job = tenant(&device, 2);
    let first = Worker::join(&device, &job, 0).unwrap();
    let second = Worker::join(&device, &job, 1).unwrap();
    let (iova, other) = (first.queue.iova(), second.queue.iova());
    card.lie(
        CmdStatus::OFFSET,
        CmdStatus::default().with_busy(true).bits(),
    );
    card.take_events();
    let error = bounded(|| first.queue.close().unwrap_err());
    let command = Command::Stop(0);
    assert!(
        matches!(error, Error::CommandTimeout { what, .. } if what == command),
        "{error}"
    );
    let (_, events) = card.take_events();
    assert_eq!(events[1..], [Event::Reset, Event::Unmap(iova)]);

    let failed = |result: Result<()>| {
        let error = bounded(|| result.unwrap_err());
        assert!(
            matches!(&error, Error::CardFailed { reason, .. } if reason.contains("stop queue pair 0")),
            "{error}"
        );
    };
    failed(second.queue.ring_sq(1));
    failed(device.abort_tenant(job.id).map(drop));
    failed(
        device
            .create_tenant(TenantConfig {
                workers: 1,
                slots_log2: 0,
                token: 0,
            })
            .map(drop),
    );
    failed(Worker::join(&device, &job, 0).map(drop));
    // The function was reset, so the other queue's memory can go without a word to the card.
    bounded(|| second.queue.close().unwrap());
    assert_eq!(card.take_events().1, [Event::Unmap(other)]);
    drop(device);
    card.heal();
    let device = open(&card).unwrap();
    let job = tenant(&device, 1);
    let mut worker = Worker::join(&device, &job, 0).unwrap();
    worker.submit(1.0, 0).unwrap();
    assert_eq!(worker.result(), [1.0; 16]);
}

#[test]
fn memory_of_a_card_that_cannot_be_reset_is_kept() {
    let (card, device) = device();
    let job = tenant(&device, 1);
    let Worker {
        queue,
        sq,
        cq,
        memory,
        ..
    } = Worker::join(&device, &job, 0).unwrap();
    let (inode, iova) = (inode(&memory), queue.iova());
    drop((sq, cq, memory));
    card.lie(
        CmdStatus::OFFSET,
        CmdStatus::default().with_busy(true).bits(),
    );
    card.break_call(Call::Reset, Fault::Timeout);
    bounded(|| drop(queue));
    bounded(|| drop(device));
    assert_eq!(card.mappings(), [(iova, ARENA)]);
    drop(card);
    assert!(is_mapped(inode));
}

#[test]
fn memory_that_cannot_be_unmapped_is_kept_and_its_queue_with_it() {
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
    card.break_call(Call::Unmap, Fault::Refuse);
    let error = queue.close().unwrap_err();
    assert!(matches!(error, Error::Pci(_)), "{error}");
    card.heal();
    let mut next = Worker::join(&device, &job, 1).unwrap();
    assert_eq!(next.queue.index(), 1);
    device.abort_tenant(job.id).unwrap();
    next.submit(1.0, 0).unwrap();
    drop((next, device, card));
    assert!(is_mapped(inode));
}

#[test]
fn a_card_that_is_unplugged_is_noticed_everywhere() {
    for fault in [Fault::AllOnes, Fault::Gone] {
        let (card, device) = device();
        let job = tenant(&device, 1);
        let worker = Worker::join(&device, &job, 0).unwrap();
        card.break_all(fault);
        let gone = |error: Error| {
            assert!(
                matches!(error, Error::CardGone { .. }),
                "{fault:?}: {error}"
            )
        };
        gone(bounded(|| device.abort_tenant(job.id).unwrap_err()));
        gone(bounded(|| device.take_errors().unwrap_err()));
        gone(bounded(|| device.slots().unwrap_err()));
        gone(bounded(|| worker.queue.state().unwrap_err()));
        gone(bounded(|| device.pci_info().unwrap_err()));
        bounded(|| worker.queue.close().unwrap_err());
        bounded(|| drop(device));
    }
}

#[test]
fn a_slow_card_is_waited_for() {
    let card = golden(Params {
        queues: 2,
        ..Params::default()
    });
    card.delay(Duration::from_millis(1));
    let device = open(&card).unwrap();
    let job = tenant(&device, 1);
    let mut worker = Worker::join(&device, &job, 0).unwrap();
    worker.submit(1.0, 0).unwrap();
    assert_eq!(worker.result(), [1.0; 16]);
}

/// Everything a daemon does with a card in its life.
fn life(card: &Arc<FaultCard>, deadline: Duration) -> Result<()> {
    let device = open_within(card, deadline)?;
    let config = TenantConfig {
        workers: 2,
        slots_log2: 2,
        token: 3,
    };
    let job = device.create_tenant(config)?;
    let mut first = Worker::join(&device, &job, 0)?;
    let mut second = Worker::join(&device, &job, 1)?;
    first.submit(1.0, 0)?;
    second.submit(2.0, 0)?;
    device.take_errors()?;
    device.slots()?;
    device.counters(job.id)?;
    second.queue.close()?;
    device.abort_tenant(job.id)?;
    drop(first);
    device.delete_tenant(job.id)
}

/// No memory was taken from the card before it had let go of it: its queue was stopped, or the function reset.
fn is_safe(events: &[Event]) -> bool {
    let lets_go = |event: &Event| match event {
        Event::Reset => true,
        Event::Write {
            offset: Cmd::OFFSET,
            value,
        } => Cmd::from_bits(*value).op() == 2,
        _ => false,
    };
    let mut rest = events.iter();
    let mut since = Vec::new();
    rest.all(|event| match event {
        Event::Map(_) => {
            since.clear();
            true
        }
        Event::Unmap(_) => since.iter().any(lets_go),
        other => {
            since.push(*other);
            true
        }
    })
}

fn small() -> Arc<FaultCard> {
    golden(Params {
        queues: 2,
        tenants: 2,
        slots: 16,
        ..Params::default()
    })
}

/// Fails every single call of a life in turn, alone or with all after it.
#[test]
fn no_failed_call_leaves_a_mess() {
    let card = small();
    life(&card, DEADLINE).unwrap();
    let (calls, events) = card.take_events();
    assert!(calls > 200 && is_safe(&events), "{calls}");
    for fault in [Fault::Gone, Fault::Refuse, Fault::Timeout, Fault::AllOnes] {
        for (once, call) in (0..calls).flat_map(|call| [(true, call), (false, call)]) {
            let card = small();
            card.fail_at(call, fault, once);
            let result = bounded(|| life(&card, DEADLINE));
            let what = format!("{fault:?}, once {once}, at call {call}: {result:?}");
            // A card that is not there any more touches nothing.
            let absent = fault == Fault::AllOnes && !once;
            assert!(absent || is_safe(&card.take_events().1), "{what}");
            // The IOMMU works even if the card does not answer, so memory is kept only where it cannot be told.
            let kept =
                fault != Fault::AllOnes && card.hit(Call::Unmap) || !once && card.hit(Call::Reset);
            assert!(card.mappings().is_empty() || kept, "{what}");
            card.heal();
            for (iova, len) in card.mappings() {
                card.dma_unmap(iova, len).unwrap();
            }
            bounded(|| life(&card, DEADLINE)).unwrap_or_else(|e| panic!("{what}: afterwards {e}"));
        }
    }
}

#[test]
fn the_rtl_has_a_life_too() {
    let card = FaultCard::new(Card::rtl(Build::Tiny, 1, AxiConfig::default()).pci);
    for _ in 0..2 {
        life(&card, Duration::from_secs(20)).unwrap();
        assert!(is_safe(&card.take_events().1));
        assert_eq!(card.mappings(), []);
    }
}
