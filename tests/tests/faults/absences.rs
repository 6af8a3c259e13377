// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Somebody does not come, or stands still.

use std::time::{Duration, Instant};

use phub::{Error, Hub, JoinOptions, Reduce};
use phub_tests::running::CardKind;

use crate::hub::{NOTICE, Processes, Rig, TOKEN};
use crate::{beside_a_healthy_tenant, on_every_card};

on_every_card!(
    who_never_comes_is_named_by_the_timeout,
    a_stopped_worker_is_named_by_the_timeout,
    a_worker_dropped_with_work_in_flight_is_lost,
);

fn who_never_comes_is_named_by_the_timeout(card: CardKind) {
    let rig = Rig::start(card);
    beside_a_healthy_tenant(&rig, || {
        let options = JoinOptions {
            timeout: Duration::from_millis(700),
            ..Default::default()
        };
        let patient = rig.join("job", 0, 4);
        let hasty = rig.join_with("job", 2, 4, options);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| patient.push_pull("t", &mut [1.0; 5000], Reduce::Sum));
            // The other's contribution is there, so that only the absent are missing.
            std::thread::sleep(Duration::from_millis(200));
            let start = Instant::now();
            let error = hasty
                .push_pull("t", &mut [1.0; 5000], Reduce::Sum)
                .unwrap_err();
            assert!(
                matches!(&error, Error::Timeout { missing, .. } if *missing == [1, 3]),
                "{error}"
            );
            assert!((Duration::from_millis(700)..NOTICE).contains(&start.elapsed()));
            let error = other.join().unwrap().unwrap_err();
            let Error::Aborted { by, missing, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!((by.as_str(), &missing[..]), ("worker 2", &[1, 3][..]));
        });
        // What is over is over, and says the same again.
        assert!(matches!(hasty.barrier(), Err(Error::Timeout { .. })));
    });
}

fn a_stopped_worker_is_named_by_the_timeout(card: CardKind) {
    let rig = Processes::start(card);
    let stopped = rig.worker("job", 1, 2, u32::MAX, 1000);
    let options = JoinOptions {
        timeout: Duration::from_secs(1),
        ..Default::default()
    };
    let worker = Hub::connect(&rig.address())
        .unwrap()
        .join("job", 0, 2, TOKEN, options)
        .unwrap();
    let pid = rustix::process::Pid::from_raw(stopped.pid() as i32).unwrap();
    let mut step = 0;
    let error = loop {
        if step == 5 {
            rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        }
        let mut data: Vec<f32> = (0..1000).map(|i| (i + step) as f32).collect();
        match worker.push_pull("gradient", &mut data, Reduce::Sum) {
            Ok(_) => step += 1,
            Err(error) => break error,
        }
        assert!(step < 1000);
    };
    assert!(
        matches!(&error, Error::Timeout { missing, .. } if *missing == [1]),
        "{error}"
    );
}

fn a_worker_dropped_with_work_in_flight_is_lost(card: CardKind) {
    let rig = Rig::start(card);
    let (first, second) = (rig.join("job", 0, 2), rig.join("job", 1, 2));
    let handle = first
        .push_pull_async(first.stage("t", &[1.0]).unwrap(), Reduce::Sum)
        .unwrap();
    drop(first);
    assert!(handle.wait().is_err());
    // What the card had taken in before the hub noticed may still complete; nothing after it does.
    let error = match second.push_pull("t", &mut [1.0], Reduce::Sum) {
        Ok(_) => second.push_pull("u", &mut [1.0], Reduce::Sum).unwrap_err(),
        Err(error) => error,
    };
    assert!(
        matches!(&error, Error::PeerLost { missing, .. } if *missing == [0]),
        "{error}"
    );
    // The rank is free at once.
    drop(rig.join("job", 0, 1));
}
