// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Many operations in flight, and who waits for them.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use phub::{JoinOptions, Reduce, Waited};
use phub_tests::running::CardKind;

use crate::hub::Rig;
use crate::{on_every_card, sum, values};

on_every_card!(
    many_small_tensors_between_two_large_ones,
    more_in_flight_than_the_rings_hold,
    room_for_completions_is_made_while_the_hub_sleeps,
    handles_wait_as_long_as_they_are_told,
    threads_may_wait_at_the_same_time,
);

fn many_small_tensors_between_two_large_ones(card: CardKind) {
    Rig::start(card).run("job", 3, |worker| {
        let lengths: Vec<usize> = [300_000]
            .into_iter()
            .chain((1..=150).map(|i| i % 37 + 1))
            .chain([200_000])
            .collect();
        let handles: Vec<_> = lengths
            .iter()
            .enumerate()
            .map(|(i, &len)| {
                let tensor = worker
                    .stage(&format!("t{i}"), &values(worker.rank(), i as u32, len))
                    .unwrap();
                worker.push_pull_async(tensor, Reduce::Sum).unwrap()
            })
            .collect();
        // Waited for from the back: all are in flight together.
        for (i, handle) in handles.into_iter().enumerate().rev() {
            let done = handle.wait().unwrap();
            assert_eq!(done.tensor.name(), format!("t{i}"));
            assert_eq!(done.tensor.to_vec().unwrap(), sum(3, i as u32, lengths[i]));
        }
    });
}

fn more_in_flight_than_the_rings_hold(card: CardKind) {
    let options = JoinOptions {
        arena_bytes: 96 << 20,
        crc: false,
        ..Default::default()
    };
    Rig::start(card).run_with("job", 2, &options, |worker| {
        // 40 MiB are 1280 chunks, the rings hold 1023; and 1500 operations of one element.
        let big = worker.alloc("big", 10 << 20).unwrap();
        let big = worker.push_pull_async(big, Reduce::Sum).unwrap();
        let small: Vec<_> = (0..1500)
            .map(|i| {
                let tensor = worker.stage("small", &[i as f32]).unwrap();
                worker.push_pull_async(tensor, Reduce::Mean).unwrap()
            })
            .collect();
        for (i, handle) in small.into_iter().enumerate() {
            assert_eq!(handle.wait().unwrap().tensor.to_vec().unwrap(), [i as f32]);
        }
        assert_eq!(big.wait().unwrap().certificate.bytes, 40 << 20);
    });
}

/// The card fetches no descriptor without room for its completion. Worker 0 fills its ring while some of that room is taken by
/// completions it has read and not yet reported; when it reports them, it has nothing to submit, and the hub is asleep.
fn room_for_completions_is_made_while_the_hub_sleeps(card: CardKind) {
    let (filled, asleep) = (Barrier::new(2), Barrier::new(2));
    Rig::start(card).run("job", 2, |worker| {
        let one = |i: usize| {
            let tensor = worker.stage("one", &[i as f32]).unwrap();
            worker.push_pull_async(tensor, Reduce::Sum).unwrap()
        };
        for i in 0..200 {
            one(i).wait().unwrap();
        }
        let all = || (0..1023).map(one).collect::<Vec<_>>();
        let handles = if worker.rank() == 0 {
            let handles = all();
            filled.wait();
            asleep.wait();
            handles
        } else {
            filled.wait();
            let handles = all();
            std::thread::sleep(Duration::from_millis(300));
            asleep.wait();
            handles
        };
        for (i, handle) in handles.into_iter().enumerate() {
            let done = handle.wait().unwrap();
            assert_eq!(done.tensor.to_vec().unwrap(), [2.0 * i as f32]);
        }
    });
}

fn handles_wait_as_long_as_they_are_told(card: CardKind) {
    let rig = Rig::start(card);
    let (first, second) = (rig.join("job", 0, 2), rig.join("job", 1, 2));
    let handle = first
        .push_pull_async(first.stage("t", &[1.0]).unwrap(), Reduce::Sum)
        .unwrap();
    let Waited::Pending(handle) = handle.try_wait().unwrap() else {
        panic!("done without the other worker")
    };
    let start = Instant::now();
    let Waited::Pending(handle) = handle.wait_timeout(Duration::from_millis(50)).unwrap() else {
        panic!("done")
    };
    assert!(
        start.elapsed() >= Duration::from_millis(50) && start.elapsed() < Duration::from_secs(2)
    );
    // A dropped handle stops nothing.
    drop(
        second
            .push_pull_async(second.stage("t", &[2.0]).unwrap(), Reduce::Sum)
            .unwrap(),
    );
    assert_eq!(handle.wait().unwrap().tensor.to_vec().unwrap(), [3.0]);
    second.leave().unwrap();
}

fn threads_may_wait_at_the_same_time(card: CardKind) {
    Rig::start(card).run("job", 2, |worker| {
        let handles: Vec<_> = (0..32)
            .map(|i| {
                let tensor = worker
                    .stage(&format!("t{i}"), &values(worker.rank(), i, 5000))
                    .unwrap();
                worker.push_pull_async(tensor, Reduce::Sum).unwrap()
            })
            .collect();
        std::thread::scope(|scope| {
            for (i, handle) in handles.into_iter().enumerate() {
                scope.spawn(move || {
                    assert_eq!(
                        handle.wait().unwrap().tensor.to_vec().unwrap(),
                        sum(2, i as u32, 5000)
                    )
                });
            }
        });
    });
}
