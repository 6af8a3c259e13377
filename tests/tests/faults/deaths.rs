// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Somebody dies.

use std::time::{Duration, Instant};

use phub::admin::{Admin, CreateTenant};
use phub::{Error, Hub, JoinOptions, Reduce, Refusal};
use phub_tests::running::CardKind;
use rustix::process::{Pid, Signal, kill_process};

use crate::hub::{self, NOTICE, PATIENCE, Processes, Rig, TOKEN};
use crate::on_every_card;

on_every_card!(
    a_killed_worker_is_named_and_the_tenant_can_be_joined_anew,
    all_who_were_killed_are_named,
    a_killed_worker_whose_child_holds_its_connection_is_lost,
    a_killed_hub_is_noticed_by_every_worker,
    a_killed_card_is_noticed_by_every_worker,
    a_hub_that_shuts_down_tells_its_workers,
    workers_that_come_and_go_leave_nothing_behind,
);

fn a_killed_worker_is_named_and_the_tenant_can_be_joined_anew(card: CardKind) {
    let rig = Processes::start(card);
    for round in 0..3 {
        let mut workers: Vec<_> = (0..3)
            .map(|rank| rig.worker("job", rank, 3, u32::MAX, 50_000))
            .collect();
        workers
            .iter()
            .for_each(|worker| drop(worker.line("step 3", PATIENCE)));
        let victim = round;
        workers[victim].kill();
        let killed = Instant::now();
        for (rank, worker) in workers
            .iter()
            .enumerate()
            .filter(|(rank, _)| *rank != victim)
        {
            let error = worker.line("error", NOTICE);
            assert!(
                error.contains("PeerLost") && error.contains(&format!("missing: [{victim}]")),
                "{rank}: {error}"
            );
        }
        assert!(killed.elapsed() < NOTICE);
    }
    let again: Vec<_> = (0..2)
        .map(|rank| rig.worker("job", rank, 2, 5, 100))
        .collect();
    for worker in again {
        worker.line("done", PATIENCE);
        worker.finish();
    }
}

fn all_who_were_killed_are_named(card: CardKind) {
    let rig = Processes::start(card);
    let mut workers: Vec<_> = (0..4)
        .map(|rank| rig.worker("job", rank, 4, u32::MAX, 1000))
        .collect();
    workers
        .iter()
        .for_each(|worker| drop(worker.line("step 1", PATIENCE)));
    // A worker that has not joined the round it dies in, and one that has.
    for victim in [1, 3] {
        workers[victim].child.kill().unwrap();
    }
    let errors = [0, 2].map(|rank: usize| workers[rank].line("error", NOTICE));
    for error in errors {
        assert!(error.contains("PeerLost"), "{error}");
        assert!(
            ["[1]", "[3]", "[1, 3]"]
                .iter()
                .any(|ranks| error.contains(&format!("missing: {ranks}"))),
            "{error}"
        );
    }
}

/// A data loader that was forked off keeps every descriptor of its parent.
fn a_killed_worker_whose_child_holds_its_connection_is_lost(card: CardKind) {
    let rig = Rig::start(card);
    let socket = rig.socket().display().to_string();
    let mut parent = hub::Process::start(&["forker", &socket, "job", "0", "2"]);
    let child = parent.line("child ", PATIENCE);
    let child = child.trim_start_matches("child ").parse().unwrap();
    let survivor = rig.join("job", 1, 2);
    let tensor = survivor.stage("t", &[1.0]).unwrap();
    let waits = survivor.push_pull_async(tensor, Reduce::Sum).unwrap();
    parent.kill();
    let killed = Instant::now();
    let error = waits.wait().unwrap_err();
    assert!(
        matches!(&error, Error::PeerLost { missing, .. } if *missing == [0]),
        "{error}"
    );
    assert!(killed.elapsed() < NOTICE);
    let child = Pid::from_raw(child).unwrap();
    kill_process(child, Signal::KILL).expect("the child was there all the time");
}

fn a_killed_hub_is_noticed_by_every_worker(card: CardKind) {
    let mut rig = Processes::start(card);
    let workers: Vec<_> = (0..3)
        .map(|rank| rig.worker("job", rank, 3, u32::MAX, 50_000))
        .collect();
    workers
        .iter()
        .for_each(|worker| drop(worker.line("step 2", PATIENCE)));
    rig.hub.kill();
    for worker in workers {
        let error = worker.line("error", NOTICE);
        assert!(error.contains("HubGone"), "{error}");
        worker.finish();
    }
    // The next hub takes over the socket and the card.
    let card = format!("vfio-user:{}", rig.dir.path().join("card").display());
    let socket = rig.dir.path().join("hub").display().to_string();
    rig.hub = hub::Process::start(&["hub", &card, &socket]);
    rig.hub.line("ready", PATIENCE);
    let worker = rig.worker("job", 0, 1, 3, 1000);
    worker.line("done", PATIENCE);
}

fn a_killed_card_is_noticed_by_every_worker(card: CardKind) {
    let mut rig = Processes::start(card);
    let mut admin = Admin::connect(&rig.dir.path().join("hub"), NOTICE).unwrap();
    let kept = CreateTenant {
        name: "kept".into(),
        world: 1,
        token: 5,
        slots_log2: Some(3),
    };
    admin.create_tenant(kept).unwrap();
    let idle = Hub::connect(&rig.address())
        .unwrap()
        .join("idle", 0, 1, TOKEN, JoinOptions::default())
        .unwrap();
    let workers: Vec<_> = (0..3)
        .map(|rank| rig.worker("job", rank, 3, u32::MAX, 50_000))
        .collect();
    workers
        .iter()
        .for_each(|worker| drop(worker.line("step 2", PATIENCE)));
    rig.card.kill();
    for worker in workers {
        let error = worker.line("error", NOTICE);
        assert!(error.contains("CardGone"), "{error}");
        worker.finish();
    }
    // Also one that was not waiting for anything.
    let error = idle.barrier().unwrap_err();
    assert!(
        matches!(error, Error::CardGone { .. } | Error::HubGone { .. }),
        "{error}"
    );
    // The hub stays, and says why nobody can join; it takes the card back when it returns.
    let address = rig.address();
    let join = || Hub::connect(&address)?.join("job", 0, 1, TOKEN, JoinOptions::default());
    let error = join().unwrap_err();
    assert!(
        matches!(
            &error,
            Error::Refused {
                code: Refusal::CardFailed,
                ..
            }
        ),
        "{error}"
    );
    let socket = rig.dir.path().join("card").display().to_string();
    rig.card = hub::Process::start(&["card", card.name(), &socket]);
    rig.card.line("ready", PATIENCE);
    let deadline = Instant::now() + PATIENCE;
    let worker = loop {
        match join() {
            Ok(worker) => break worker,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    worker
        .push_pull("t", &mut [1.0; 1000], Reduce::Sum)
        .unwrap();
    drop(worker);
    let again = rig.worker("job", 0, 1, 3, 1000);
    again.line("done", PATIENCE);
    // What an operator made is still there, with its token.
    let kept = |token| Hub::connect(&address)?.join("kept", 0, 1, token, JoinOptions::default());
    assert!(kept(TOKEN).is_err());
    kept(5)
        .unwrap()
        .push_pull("t", &mut [1.0], Reduce::Sum)
        .unwrap();
}

fn a_hub_that_shuts_down_tells_its_workers(card: CardKind) {
    let mut rig = Rig::start(card);
    let (first, second) = (rig.join("job", 0, 2), rig.join("job", 1, 2));
    let socket = rig.socket();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| first.push_pull("t", &mut [1.0], Reduce::Sum));
        std::thread::sleep(Duration::from_millis(100));
        let start = Instant::now();
        rig.daemon.take().unwrap().stop().unwrap();
        assert!(start.elapsed() < NOTICE);
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::HubGone { .. }), "{error}");
    });
    let error = second.push("t", &[1.0], Reduce::Sum).unwrap_err();
    assert!(matches!(error, Error::HubGone { .. }), "{error}");
    assert!(!socket.exists());
    assert!(matches!(
        Hub::connect(&rig.address()),
        Err(Error::HubUnreachable { .. })
    ));
}

fn workers_that_come_and_go_leave_nothing_behind(card: CardKind) {
    let rig = Processes::start(card);
    let round = |victim: Option<usize>| {
        let mut workers: Vec<_> = (0..3)
            .map(|rank| rig.worker("job", rank, 3, 3, 5000))
            .collect();
        if let Some(victim) = victim {
            workers[victim].line("joined", PATIENCE);
            workers[victim].child.kill().unwrap();
            workers
                .iter_mut()
                .for_each(|worker| drop(worker.child.kill()));
        } else {
            workers.into_iter().for_each(|worker| worker.finish());
        }
    };
    let count = || {
        // The hub notices the last ones a moment later.
        let mut counts = (usize::MAX, usize::MAX);
        for _ in 0..50 {
            std::thread::sleep(Duration::from_millis(10));
            counts = counts.min((rig.hub.descriptors(), rig.card.descriptors()));
        }
        counts
    };
    round(None);
    let before = count();
    for victim in [None, Some(0), Some(2), None] {
        round(victim);
    }
    assert_eq!(count(), before, "open descriptors of hub and card");
}
