// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! What cannot work is refused, and harms nothing.

use std::time::Instant;

use phub::{Error, JoinOptions, Reduce};
use phub_tests::running::CardKind;

use crate::hub::{PATIENCE, Rig};
use crate::{on_every_card, step};

on_every_card!(
    a_different_order_is_a_mismatch_and_no_hang,
    other_lengths_and_reductions_are_mismatches,
    what_cannot_work_is_refused_and_harms_nothing,
    tensors_of_another_worker_are_refused,
);

fn a_different_order_is_a_mismatch_and_no_hang(card: CardKind) {
    let start = Instant::now();
    let errors = Rig::start(card).run("job", 2, |worker| {
        let names = if worker.rank() == 0 {
            ["a", "b"]
        } else {
            ["b", "a"]
        };
        names
            .map(|name| worker.push_pull(name, &mut [1.0; 10], Reduce::Sum))
            .into_iter()
            .find_map(Result::err)
    });
    assert!(start.elapsed() < PATIENCE);
    let [Some(a), Some(b)] = &errors[..] else {
        panic!("{errors:?}")
    };
    let mismatch = |error: &Error| matches!(error, Error::Mismatch { .. });
    let aborted =
        |error: &Error| matches!(error, Error::Aborted { by, .. } if by.starts_with("worker "));
    assert!(
        mismatch(a) && (aborted(b) || mismatch(b)) || mismatch(b) && aborted(a),
        "{errors:?}"
    );
}

fn other_lengths_and_reductions_are_mismatches(card: CardKind) {
    for case in 0..2 {
        let errors = Rig::start(card).run("job", 2, |worker| {
            let odd = worker.rank() == 1;
            let len = if case == 0 && odd { 11 } else { 10 };
            let reduce = if case == 1 && odd {
                Reduce::Mean
            } else {
                Reduce::Sum
            };
            worker.push_pull("t", &mut vec![1.0; len], reduce).err()
        });
        assert!(
            errors
                .iter()
                .any(|e| matches!(e, Some(Error::Mismatch { tensor, .. }) if tensor == "t")),
            "{errors:?}"
        );
        assert!(errors.iter().all(Option::is_some), "{errors:?}");
    }
}

fn what_cannot_work_is_refused_and_harms_nothing(card: CardKind) {
    let rig = Rig::start(card);
    let usage = |result: phub::Result<()>| {
        let error = result.unwrap_err();
        assert!(
            matches!(error, Error::InvalidUsage { .. }) && !error.ends_epoch(),
            "{error}"
        );
    };
    let options = JoinOptions {
        arena_bytes: 1 << 20,
        ..Default::default()
    };
    let worker = rig.join_with("job", 0, 1, options);
    // 256 slots of 1 KiB: a push of more could not be pulled.
    usage(worker.push("big", &vec![0.0; 65_537], Reduce::Sum));
    worker.push("a", &vec![1.0; 65_536], Reduce::Sum).unwrap();
    usage(worker.push("b", &[1.0], Reduce::Sum));
    usage(worker.push_pull("b", &mut [1.0], Reduce::Sum).map(drop));
    usage(worker.pull("a", &mut [0.0], Reduce::Sum).map(drop));
    usage(
        worker
            .pull("a", &mut vec![0.0; 65_536], Reduce::Mean)
            .map(drop),
    );
    let mut a = vec![0.0; 65_536];
    worker.pull("a", &mut a, Reduce::Sum).unwrap();
    assert_eq!(a, vec![1.0; 65_536]);
    // Nothing is nothing, but it is not wrong.
    worker.push_pull("empty", &mut [], Reduce::Mean).unwrap();
    worker.push("empty", &[], Reduce::Sum).unwrap();
    worker.pull("empty", &mut [], Reduce::Sum).unwrap();
    let full = worker.alloc("huge", 1 << 20).unwrap_err();
    assert!(
        matches!(
            full,
            Error::ArenaFull {
                wanted: 4_194_304,
                ..
            }
        ) && !full.ends_epoch(),
        "{full}"
    );
    assert!(worker.alloc("endless", usize::MAX).is_err());
    // A tensor that fills the arena to the last byte, and one that comes after it.
    let tensor = worker.alloc("all", (1 << 20) / 4).unwrap();
    let done = worker
        .push_pull_async(tensor, Reduce::Sum)
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(done.certificate.bytes, 1 << 20);
    let mut tensor = done.tensor;
    usage(tensor.write_at((1 << 20) / 4, &[1.0]));
    usage(tensor.read_at(usize::MAX, &mut [1.0]));
    drop(tensor);
    step(&worker, 1, 1000);
}

fn tensors_of_another_worker_are_refused(card: CardKind) {
    let rig = Rig::start(card);
    let (first, second) = (rig.join("job", 0, 2), rig.join("job", 1, 2));
    let error = first
        .push_async(second.alloc("t", 1).unwrap(), Reduce::Sum)
        .unwrap_err();
    assert!(matches!(error, Error::InvalidUsage { .. }), "{error}");
}
