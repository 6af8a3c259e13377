// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Jobs that come and go, beside and after each other.

use std::time::{Duration, Instant};

use phub::admin::CreateTenant;
use phub::{Error, JoinOptions, Reduce, Worker};
use phub_tests::running::CardKind;

use crate::hub::{NOTICE, PATIENCE, Rig, TOKEN};
use crate::{on_every_card, step, step_other};

on_every_card!(
    a_second_job_after_a_first,
    a_worker_that_comes_back_waits_for_the_last_run_to_end,
    who_goes_on_after_others_have_left_is_told,
    who_has_left_after_doing_its_part_is_not_blamed,
    tenants_do_not_notice_each_other,
    the_operator_sees_what_goes_on,
);

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
    assert!(start.elapsed() < NOTICE);
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
