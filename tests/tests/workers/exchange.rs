// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! One exchange after another: every operation, in every number and length that has gone wrong somewhere.

use std::time::Duration;

use phub::{Error, JoinOptions, Reduce};
use phub_tests::running::CardKind;

use crate::hub::{PATIENCE, Process, Processes, Rig};
use crate::{WORLDS, everyone, lengths, on_every_card, step, sum, values};

on_every_card!(
    push_pull_of_every_length_and_number_of_workers,
    mean_is_the_sum_over_the_number,
    push_then_pull,
    some_contribute_and_all_take,
    broadcast_from_every_root,
    nobody_passes_a_barrier_early,
    the_same_name_with_a_new_buffer,
    sequence_numbers_wrap,
    infinities_and_nans_are_flagged,
    arenas_of_huge_pages_if_there_are_any,
    processes_sum_too,
);

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
