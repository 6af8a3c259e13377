// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Workers on a hub: every operation, in every number and length that has gone wrong somewhere.

mod hub;

use std::sync::Barrier;
use std::time::{Duration, Instant};

use hub::{PATIENCE, Process, Processes, Rig, TOKEN};
use phub::admin::CreateTenant;
use phub::{Error, JoinOptions, Reduce, Waited, Worker};
use phub_tests::running::CardKind;

on_every_card!(
    push_pull_of_every_length_and_number_of_workers,
    mean_is_the_sum_over_the_number,
    push_then_pull,
    some_contribute_and_all_take,
    broadcast_from_every_root,
    nobody_passes_a_barrier_early,
    the_same_name_with_a_new_buffer,
    a_second_job_after_a_first,
    a_worker_that_comes_back_waits_for_the_last_run_to_end,
    many_small_tensors_between_two_large_ones,
    more_in_flight_than_the_rings_hold,
    room_for_completions_is_made_while_the_hub_sleeps,
    sequence_numbers_wrap,
    arenas_of_huge_pages_if_there_are_any,
    infinities_and_nans_are_flagged,
    handles_wait_as_long_as_they_are_told,
    threads_may_wait_at_the_same_time,
    a_different_order_is_a_mismatch_and_no_hang,
    other_lengths_and_reductions_are_mismatches,
    what_cannot_work_is_refused_and_harms_nothing,
    who_goes_on_after_others_have_left_is_told,
    who_has_left_after_doing_its_part_is_not_blamed,
    tensors_of_another_worker_are_refused,
    tenants_do_not_notice_each_other,
    the_operator_sees_what_goes_on,
    processes_sum_too,
);

/// Numbers of workers that are special: alone, a pair, odd, more than a machine has cores.
const WORLDS: [u32; 4] = [1, 2, 3, 12];

/// Lengths around every boundary: tails, a beat, a segment, a chunk, several chunks.
fn lengths() -> Vec<usize> {
    let mut lengths: Vec<usize> = (1..=17).collect();
    lengths.extend([
        255,
        256,
        257,
        1023,
        1024,
        1025,
        8191,
        8192,
        8193,
        8192 * 3 + 5,
    ]);
    lengths
}

/// Values whose sums are exact, so that the order of additions does not matter.
fn values(rank: u32, salt: u32, len: usize) -> Vec<f32> {
    (0..len as u32)
        .map(|i| ((i * 7 + salt) % 512) as f32 + f32::from(rank as u16))
        .collect()
}

fn sum(world: u32, salt: u32, len: usize) -> Vec<f32> {
    let mut total = vec![0.0; len];
    for rank in 0..world {
        total
            .iter_mut()
            .zip(values(rank, salt, len))
            .for_each(|(t, v)| *t += v);
    }
    total
}

fn everyone(world: u32) -> u64 {
    u64::MAX >> (64 - world)
}

/// One training step as a test: a sum of `len` values, checked.
fn step(worker: &Worker, salt: u32, len: usize) {
    let mut data = values(worker.rank(), salt, len);
    worker.push_pull("step", &mut data, Reduce::Sum).unwrap();
    assert_eq!(data, sum(worker.world(), salt, len));
}

fn push_pull_of_every_length_and_number_of_workers(card: CardKind) {
    for world in WORLDS {
        Rig::start(card).run("job", world, |worker| {
            for (salt, len) in lengths().into_iter().enumerate() {
                let mut data = values(worker.rank(), salt as u32, len);
                let certificate = worker.push_pull("t", &mut data, Reduce::Sum).unwrap();
                assert_eq!(data, sum(world, salt as u32, len), "{len} elements");
                assert_eq!(certificate.contributors, everyone(world));
                assert_eq!(certificate.bytes, 4 * len as u64);
                assert!(!certificate.non_finite && certificate.crc_checked);
            }
            worker.leave().unwrap();
        });
    }
}

fn mean_is_the_sum_over_the_number(card: CardKind) {
    for world in WORLDS {
        Rig::start(card).run("job", world, |worker| {
            let mut data = values(worker.rank(), 1, 1000);
            worker.push_pull("t", &mut data, Reduce::Mean).unwrap();
            let expected: Vec<f32> = sum(world, 1, 1000)
                .iter()
                .map(|s| s / world as f32)
                .collect();
            assert_eq!(data, expected);
        });
    }
}

fn push_then_pull(card: CardKind) {
    for world in WORLDS {
        Rig::start(card).run("job", world, |worker| {
            for (salt, len) in [1, 17, 256, 257, 8192, 40_000].into_iter().enumerate() {
                let salt = salt as u32;
                worker
                    .push("a", &values(worker.rank(), salt, len), Reduce::Sum)
                    .unwrap();
                worker
                    .push("b", &values(worker.rank(), salt + 1, 9), Reduce::Mean)
                    .unwrap();
                let (mut a, mut b) = (vec![0.0; len], vec![0.0; 9]);
                worker.pull("b", &mut b, Reduce::Mean).unwrap();
                let certificate = worker.pull("a", &mut a, Reduce::Sum).unwrap();
                assert_eq!(a, sum(world, salt, len));
                assert_eq!(
                    b,
                    sum(world, salt + 1, 9)
                        .iter()
                        .map(|s| s / world as f32)
                        .collect::<Vec<_>>()
                );
                assert_eq!(certificate.contributors, everyone(world));
            }
        });
    }
}

fn some_contribute_and_all_take(card: CardKind) {
    Rig::start(card).run("job", 3, |worker| {
        let mut data = vec![0.0; 3000];
        // Workers 0 and 2 contribute, worker 1 only takes; then nobody contributes.
        if worker.rank() == 1 {
            let certificate = worker.pull("t", &mut data, Reduce::Mean).unwrap();
            assert_eq!(certificate.contributors, 0b101);
        } else {
            data = values(worker.rank(), 5, 3000);
            worker.push_pull("t", &mut data, Reduce::Mean).unwrap();
        }
        let (a, b) = (values(0, 5, 3000), values(2, 5, 3000));
        assert_eq!(
            data,
            a.iter()
                .zip(b)
                .map(|(a, b)| (a + b) / 2.0)
                .collect::<Vec<_>>()
        );
        let certificate = worker.pull("t", &mut data, Reduce::Sum).unwrap();
        assert_eq!((certificate.contributors, data), (0, vec![0.0; 3000]));
        // PUSH_PULL after PULL.
        step(&worker, 8, 3000);
    });
}

fn broadcast_from_every_root(card: CardKind) {
    for world in WORLDS {
        Rig::start(card).run("job", world, |worker| {
            for root in 0..world {
                let expected = values(root, root, 20_001);
                let mut data = if worker.rank() == root {
                    expected.clone()
                } else {
                    vec![-1.0; 20_001]
                };
                worker.broadcast("weights", &mut data, root).unwrap();
                assert_eq!(data, expected);
            }
            assert!(matches!(
                worker.broadcast("weights", &mut [0.0], world),
                Err(Error::InvalidUsage { .. })
            ));
            step(&worker, 3, 10);
        });
    }
}

fn nobody_passes_a_barrier_early(card: CardKind) {
    use std::sync::atomic::{AtomicU32, Ordering};
    let arrived = AtomicU32::new(0);
    Rig::start(card).run("job", 3, |worker| {
        for round in 1..=5 {
            std::thread::sleep(Duration::from_millis(u64::from(worker.rank()) * 3));
            arrived.fetch_add(1, Ordering::SeqCst);
            worker.barrier().unwrap();
            assert!(arrived.load(Ordering::SeqCst) >= 3 * round);
        }
    });
}

fn the_same_name_with_a_new_buffer(card: CardKind) {
    Rig::start(card).run("job", 2, |worker| {
        for salt in 0..20 {
            // Every round another length, and another place in the arena.
            let _elsewhere = worker.alloc("hole", 100 * salt as usize + 1).unwrap();
            step(&worker, salt, 500 + 333 * salt as usize);
        }
    });
}

fn a_second_job_after_a_first(card: CardKind) {
    let rig = Rig::start(card);
    let token = TOKEN;
    rig.admin()
        .create_tenant(CreateTenant {
            name: "kept".into(),
            token,
            world: 2,
            slots_log2: Some(6),
        })
        .unwrap();
    let mut epochs = Vec::new();
    for round in 0..3 {
        for tenant in ["kept", "fleeting"] {
            let of_workers = rig.run(tenant, 2, |worker| {
                step(&worker, round, 10_000);
                let epoch = worker.epoch();
                worker.leave().unwrap();
                epoch
            });
            assert_eq!(of_workers[0], of_workers[1]);
            epochs.push((tenant, of_workers[0]));
        }
    }
    let number = epochs.len();
    epochs.sort_unstable();
    epochs.dedup();
    assert_eq!(
        epochs.len(),
        number,
        "every job has an epoch of its own: {epochs:?}"
    );
    let names: Vec<_> = rig
        .admin()
        .tenants()
        .unwrap()
        .into_iter()
        .map(|t| t.name)
        .collect();
    assert_eq!(names, ["kept"]);
    // Another world size under the old name: the tenant went with its last worker.
    rig.run("fleeting", 3, |worker| step(&worker, 1, 100));
}

fn a_worker_that_comes_back_waits_for_the_last_run_to_end(card: CardKind) {
    let rig = Rig::start(card);
    let (first, second) = (rig.join("job", 0, 2), rig.join("job", 1, 2));
    first.leave().unwrap();
    let again = std::thread::scope(|scope| {
        let again = scope.spawn(|| rig.join("job", 0, 2));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!again.is_finished());
        second.leave().unwrap();
        again.join().unwrap()
    });
    let other = rig.join("job", 1, 2);
    std::thread::scope(|scope| {
        scope.spawn(|| step(&again, 1, 100));
        step(&other, 1, 100);
    });
}

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

/// `sysctl vm.nr_hugepages=128` before it tests the other half.
fn arenas_of_huge_pages_if_there_are_any(card: CardKind) {
    let rig = Rig::with(card, |config| config.huge_pages = true);
    for round in 0..2 {
        rig.run("job", 2, |worker| {
            for salt in 0..5 {
                step(&worker, round + salt, 70_000);
            }
        });
    }
}

fn sequence_numbers_wrap(card: CardKind) {
    let options = JoinOptions {
        first_sequence: u32::MAX - 40,
        ..Default::default()
    };
    Rig::start(card).run_with("job", 2, &options, |worker| {
        for salt in 0..30 {
            step(&worker, salt, 777);
            worker
                .push("p", &values(worker.rank(), salt, 300), Reduce::Sum)
                .unwrap();
            let mut data = [0.0; 300];
            worker.pull("p", &mut data, Reduce::Sum).unwrap();
            assert_eq!(data[..], sum(2, salt, 300));
        }
    });
}

fn infinities_and_nans_are_flagged(card: CardKind) {
    Rig::start(card).run("job", 2, |worker| {
        let mut data = vec![1.0; 100];
        assert!(
            !worker
                .push_pull("t", &mut data, Reduce::Sum)
                .unwrap()
                .non_finite
        );
        let mut data = vec![1.0; 10_000];
        if worker.rank() == 1 {
            data[5000] = f32::INFINITY;
        }
        assert!(
            worker
                .push_pull("t", &mut data, Reduce::Sum)
                .unwrap()
                .non_finite
        );
        assert_eq!((data[4999], data[5000]), (2.0, f32::INFINITY));
        let mut data = vec![
            if worker.rank() == 0 {
                f32::INFINITY
            } else {
                f32::NEG_INFINITY
            };
            3
        ];
        assert!(
            worker
                .push_pull("t", &mut data, Reduce::Mean)
                .unwrap()
                .non_finite
        );
        assert!(data.iter().all(|v| v.to_bits() == phub_abi::CANONICAL_NAN));
        // Subnormals and the sign of zero survive.
        let mut data = [f32::from_bits(1), -0.0];
        worker.push_pull("t", &mut data, Reduce::Sum).unwrap();
        assert_eq!(data.map(f32::to_bits), [2, (-0.0f32).to_bits()]);
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

fn who_goes_on_after_others_have_left_is_told(card: CardKind) {
    let rig = Rig::start(card);
    let (first, second) = (rig.join("job", 0, 3), rig.join("job", 1, 3));
    let third = rig.join("job", 2, 3);
    std::thread::scope(|scope| {
        for worker in [&first, &second, &third] {
            scope.spawn(|| step(worker, 1, 5000));
        }
    });
    first.leave().unwrap();
    second.leave().unwrap();
    let start = Instant::now();
    let error = third.push_pull("t", &mut [1.0], Reduce::Sum).unwrap_err();
    assert!(
        matches!(&error, Error::PeerLost { missing, .. } if *missing == [0, 1]),
        "{error}"
    );
    assert!(start.elapsed() < hub::NOTICE);
}

fn who_has_left_after_doing_its_part_is_not_blamed(card: CardKind) {
    let rig = Rig::start(card);
    let [root, quick, slow] = [0, 1, 2].map(|rank| rig.join("job", rank, 3));
    root.broadcast("weights", &mut [4.0; 10], 0).unwrap();
    root.leave().unwrap();
    let take = |worker: &Worker| {
        let mut weights = [0.0; 10];
        worker
            .broadcast("weights", &mut weights, 0)
            .map(|()| weights)
    };
    std::thread::scope(|scope| {
        let quick = scope.spawn(|| take(&quick));
        std::thread::sleep(Duration::from_millis(2500));
        assert_eq!(take(&slow), Ok([4.0; 10]));
        assert_eq!(quick.join().unwrap(), Ok([4.0; 10]));
    });
}

fn tensors_of_another_worker_are_refused(card: CardKind) {
    let rig = Rig::start(card);
    let (first, second) = (rig.join("job", 0, 2), rig.join("job", 1, 2));
    let error = first
        .push_async(second.alloc("t", 1).unwrap(), Reduce::Sum)
        .unwrap_err();
    assert!(matches!(error, Error::InvalidUsage { .. }), "{error}");
}

fn tenants_do_not_notice_each_other(card: CardKind) {
    let rig = Rig::start(card);
    std::thread::scope(|scope| {
        for (tenant, world) in [("a", 2), ("b", 3), ("c", 1)] {
            let rig = &rig;
            scope.spawn(move || {
                let token = u64::from(world) << 40;
                std::thread::scope(|scope| {
                    for rank in 0..world {
                        scope.spawn(move || {
                            let worker = rig
                                .hub()
                                .join(tenant, rank, world, token, JoinOptions::default())
                                .unwrap();
                            (0..40).for_each(|salt| step(&worker, salt, 3000));
                        });
                    }
                });
            });
        }
    });
}

fn the_operator_sees_what_goes_on(card: CardKind) {
    let rig = Rig::start(card);
    let mut admin = rig.admin();
    let info = admin.info().unwrap();
    assert_eq!((info.workers, info.tenants, info.auto_create), (0, 0, true));
    assert!(
        info.identity["segment_bytes"].as_u64() > Some(0),
        "{:?}",
        info.identity
    );
    let (first, second) = (rig.join("job", 0, 2), rig.join("job", 1, 2));
    let waiting = first
        .push_pull_async(first.stage("t", &[1.0; 300]).unwrap(), Reduce::Sum)
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    let slots = loop {
        let slots = admin.slots(Some("job")).unwrap();
        if slots.open == 2 && slots.slots.iter().all(|s| s.contributed == [0]) {
            break slots.slots;
        }
        assert!(Instant::now() < deadline, "{slots:?}");
    };
    assert!(
        slots
            .iter()
            .all(|slot| slot.tenant == "job" && slot.missing == [1] && !slot.complete),
        "{slots:?}"
    );
    step_other(&second);
    waiting.wait().unwrap();
    let tenants = admin.tenants().unwrap();
    assert_eq!(
        tenants[0]
            .members
            .iter()
            .map(|m| (m.rank, m.pid))
            .collect::<Vec<_>>(),
        [(0, std::process::id()), (1, std::process::id())]
    );
    let stats = admin.stats().unwrap();
    assert_eq!(
        (
            stats.tenants["job"]["segments_in"],
            stats.tenants["job"]["bytes_in"]
        ),
        (4, 2400)
    );
    assert_eq!(stats.hub.joins, 2);
    assert!(stats.perf.contains_key("beats_in"));
    admin.delete_tenant("job").unwrap();
    let error = first.barrier().unwrap_err();
    assert!(
        matches!(&error, Error::Aborted { by, .. } if by == "the operator"),
        "{error}"
    );
    assert!(admin.delete_tenant("job").is_err() && admin.slots(Some("job")).is_err());
}

fn step_other(worker: &Worker) {
    worker.push_pull("t", &mut [1.0; 300], Reduce::Sum).unwrap();
}

fn processes_sum_too(card: CardKind) {
    let rig = Processes::start(card);
    for world in WORLDS {
        let tenant = format!("job{world}");
        let workers: Vec<Process> = (0..world)
            .map(|rank| rig.worker(&tenant, rank, world, 8, 10_007))
            .collect();
        for worker in workers {
            worker.line("done", PATIENCE);
            worker.finish();
        }
    }
}
