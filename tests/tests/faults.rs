// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Workers, hubs and cards that die, stop, or lie: everybody else gets an error that says so, within seconds.

mod hub;

use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use hub::{NOTICE, PATIENCE, Processes, Rig, TOKEN};
use phub::control::{Connection, ControlPage, Join, Joined, MESSAGE_MAX, Reply, Request};
use phub::{Error, Hub, JoinOptions, Reduce, Refusal, Worker};
use phub_abi::{Completion, Descriptor, Flags, Opcode, Status};
use phub_driver::ring::{CompletionQueue, SubmissionQueue};
use phub_sys::{EventFd, Memory};
use rustix::io::Errno;

/// Runs `fault` while a healthy tenant trains, and shows that it noticed nothing.
fn beside_a_healthy_tenant<T>(rig: &Rig, fault: impl FnOnce() -> T) -> T {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (first, second) = (rig.join("healthy", 0, 2), rig.join("healthy", 1, 2));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let train = |worker: &Worker| {
            for step in 0.. {
                // Worker 0 says when to end, after one step at least: the sum is 1 while it goes on.
                let more = worker.rank() == 0 && (step == 0 || !stop.load(Ordering::SeqCst));
                let mut data = vec![step as f32; 3000];
                data[0] = f32::from(u8::from(more));
                worker.push_pull("healthy", &mut data, Reduce::Sum).unwrap();
                assert!(data[1..].iter().all(|v| *v == 2.0 * step as f32));
                if data[0] == 0.0 {
                    return step;
                }
            }
            0
        };
        let threads = [&first, &second].map(|worker| scope.spawn(move || train(worker)));
        // A fault that fails must end the training too, or nobody would see it fail.
        let result = std::panic::catch_unwind(AssertUnwindSafe(fault));
        stop.store(true, Ordering::SeqCst);
        for thread in threads {
            assert!(thread.join().unwrap() > 0);
        }
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

// ------------------------------------------------------------------ somebody dies

#[test]
fn a_killed_worker_is_named_and_the_tenant_can_be_joined_anew() {
    let rig = Processes::start();
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

#[test]
fn all_who_were_killed_are_named() {
    let rig = Processes::start();
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

#[test]
fn a_killed_hub_is_noticed_by_every_worker() {
    let mut rig = Processes::start();
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

#[test]
fn a_killed_card_is_noticed_by_every_worker() {
    let mut rig = Processes::start();
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
    let deadline = Instant::now() + PATIENCE;
    while rig.hub.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the hub goes on without a card");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!rig.dir.path().join("hub").exists(), "its socket is left");
}

#[test]
fn a_hub_that_shuts_down_tells_its_workers() {
    let mut rig = Rig::start();
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

#[test]
fn workers_that_come_and_go_leave_nothing_behind() {
    let rig = Processes::start();
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

// ------------------------------------------------------------------ somebody does not come

#[test]
fn who_never_comes_is_named_by_the_timeout() {
    let rig = Rig::start();
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

#[test]
fn a_stopped_worker_is_named_by_the_timeout() {
    let rig = Processes::start();
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

#[test]
fn a_worker_dropped_with_work_in_flight_is_lost() {
    let rig = Rig::start();
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

// ------------------------------------------------------------------ somebody lies to the hub

#[test]
fn lies_about_tenant_rank_and_world_are_refused() {
    let rig = Rig::start();
    beside_a_healthy_tenant(&rig, || {
        let refusal = |tenant: &str, rank, world, token, arena_bytes| {
            let options = JoinOptions {
                arena_bytes,
                timeout: Duration::from_millis(200),
                ..Default::default()
            };
            match rig.hub().join(tenant, rank, world, token, options) {
                Err(Error::Refused { code, .. }) => code,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            refusal("healthy", 0, 2, TOKEN + 1, 4096),
            Refusal::WrongToken
        );
        assert_eq!(
            refusal("healthy", 0, 3, TOKEN, 4096),
            Refusal::WorldMismatch
        );
        assert_eq!(
            refusal("healthy", 2, 2, TOKEN, 4096),
            Refusal::RankOutOfRange
        );
        assert_eq!(
            refusal("healthy", u32::MAX, 2, TOKEN, 4096),
            Refusal::RankOutOfRange
        );
        assert_eq!(refusal("healthy", 1, 2, TOKEN, 4096), Refusal::RankTaken);
        assert_eq!(refusal("new", 0, 0, TOKEN, 4096), Refusal::RankOutOfRange);
        assert_eq!(refusal("new", 0, 65, TOKEN, 4096), Refusal::BadRequest);
        assert_eq!(refusal("new", 0, 1, TOKEN, u64::MAX), Refusal::LimitReached);
        assert_eq!(
            refusal("no such name", 0, 1, TOKEN, 4096),
            Refusal::BadRequest
        );
        // Nothing of it is left.
        let names: Vec<_> = rig
            .admin()
            .tenants()
            .unwrap()
            .into_iter()
            .map(|t| t.name)
            .collect();
        assert_eq!(names, ["healthy"]);
    });
    let rig = Rig::with(|config| config.auto_create = false);
    let error = rig
        .hub()
        .join("new", 0, 1, TOKEN, JoinOptions::default())
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::Refused {
                code: Refusal::NoSuchTenant,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn more_workers_than_queues_are_refused() {
    let rig = Rig::start();
    let options = JoinOptions {
        arena_bytes: 4096,
        ..Default::default()
    };
    let mut workers = Vec::new();
    let refused = loop {
        let rank = workers.len() as u32;
        match rig
            .hub()
            .join(&format!("job{rank}"), 0, 1, TOKEN, options.clone())
        {
            Ok(worker) => workers.push(worker),
            Err(error) => break error,
        }
        assert!(workers.len() <= 64);
    };
    assert!(
        matches!(
            refused,
            Error::Refused {
                code: Refusal::LimitReached,
                ..
            }
        ),
        "{refused}"
    );
    assert!(!workers.is_empty());
    workers.iter().for_each(|worker| worker.barrier().unwrap());
    drop(workers);
    rig.join("again", 0, 1).barrier().unwrap();
}

#[test]
fn garbage_on_the_control_socket_harms_only_its_sender() {
    use rustix::net::{
        AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send,
        socket_with,
    };
    let rig = Rig::start();
    let raw = || -> OwnedFd {
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        connect(&socket, &SocketAddrUnix::new(rig.socket()).unwrap()).unwrap();
        socket
    };
    let answer = |socket: &OwnedFd, message: &[u8]| -> String {
        send(socket, message, SendFlags::NOSIGNAL).unwrap();
        let mut data = vec![0; MESSAGE_MAX];
        rustix::net::sockopt::set_socket_timeout(
            socket,
            rustix::net::sockopt::Timeout::Recv,
            Some(NOTICE),
        )
        .unwrap();
        let (n, _) = rustix::net::recv(socket, &mut data, rustix::net::RecvFlags::empty()).unwrap();
        String::from_utf8(data[..n].to_vec()).unwrap()
    };
    beside_a_healthy_tenant(&rig, || {
        let socket = raw();
        for bad in [
            &b"{"[..],
            b"\0\xff",
            b"[]",
            br#"{"request":"hello"}"#,
            &vec![b'x'; MESSAGE_MAX + 1],
        ] {
            assert!(answer(&socket, bad).contains("bad-request"));
        }
        assert!(answer(&socket, br#"{"request":"info"}"#).contains("the first request is `hello`"));
        assert!(
            answer(&socket, br#"{"request":"hello","version":99,"client":"x"}"#)
                .contains(r#""code":"version""#)
        );
        assert!(
            answer(&socket, br#"{"request":"hello","version":1,"client":"x"}"#)
                .contains(r#""reply":"hello""#)
        );
        for early in ["leave", "fate"] {
            assert!(
                answer(&socket, format!(r#"{{"request":"{early}"}}"#).as_bytes())
                    .contains("bad-request")
            );
        }
        assert!(answer(&socket, br#"{"request":"info"}"#).contains(r#""reply":"info""#));
        // One that asks and never reads is cut off, or at least holds nobody up.
        let deaf = raw();
        let _ = answer(&deaf, br#"{"request":"hello","version":1,"client":"x"}"#);
        for _ in 0..2000 {
            if send(
                &deaf,
                br#"{"request":"info"}"#,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            )
            .is_err()
            {
                std::thread::yield_now();
            }
        }
        // A crowd that says nothing.
        let crowd: Vec<_> = (0..150).map(|_| raw()).collect();
        rig.admin().info().unwrap();
        drop(crowd);
    });
}

// ------------------------------------------------------------------ somebody lies to the card

/// A worker without the library: rings and control page by hand.
struct Liar {
    connection: Connection,
    joined: Joined,
    memory: Memory,
    page: ControlPage,
    sq: SubmissionQueue,
    cq: CompletionQueue,
    event: EventFd,
    kick: OwnedFd,
}

impl Liar {
    fn join(rig: &Rig, tenant: &str, rank: u32, world: u32) -> Self {
        let mut connection = Connection::open(&rig.socket(), NOTICE).unwrap();
        let join = Join {
            tenant: tenant.into(),
            token: TOKEN,
            world,
            rank,
            arena_bytes: 1 << 20,
        };
        let answer = connection.call(&Request::Join(join)).unwrap();
        let Reply::Joined(joined) = answer.message else {
            panic!("{answer:?}")
        };
        let [arena, event, kick] = <[OwnedFd; 3]>::try_from(answer.fds).unwrap();
        let memory = Memory::from_fd(arena, 0, joined.layout.arena_bytes).unwrap();
        Self {
            page: ControlPage::new(&memory).unwrap(),
            sq: SubmissionQueue::new(&memory, joined.layout.sq_offset, joined.layout.sq_log2)
                .unwrap(),
            cq: CompletionQueue::new(&memory, joined.layout.cq_offset, joined.layout.cq_log2)
                .unwrap(),
            event: EventFd::from_fd(event).unwrap(),
            connection,
            joined,
            memory,
            kick,
        }
    }

    /// A PUSH_PULL that would be right.
    fn descriptor(&self) -> Descriptor {
        Descriptor {
            opcode: Opcode::PushPull as u8,
            flags: Flags::IRQ,
            cid: 9,
            epoch: self.joined.epoch,
            seq: 0,
            key: 1,
            src: self.joined.iova + self.joined.layout.buffers_offset,
            dst: self.joined.iova + self.joined.layout.buffers_offset,
            length: 256,
            crc: 0,
            reserved: [0; 24],
        }
    }

    fn ring(&self, tail: u16) {
        if self.page.ring_sq(tail) {
            match rustix::io::write(&self.kick, &[1]) {
                // The hub may have expelled this liar already.
                Ok(_) | Err(Errno::PIPE) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Submits a descriptor and gives its completion.
    fn submit(&mut self, descriptor: &Descriptor) -> Completion {
        let tail = self.sq.push(descriptor).unwrap();
        self.ring(tail);
        let deadline = Instant::now() + NOTICE;
        loop {
            if let Some(completion) = self.cq.pop() {
                self.page.ring_cq(self.cq.head());
                return completion;
            }
            assert!(Instant::now() < deadline, "no completion");
            self.event.wait(Duration::from_millis(10)).unwrap();
        }
    }

    /// Waits until its epoch is over; how.
    fn fate(&mut self) -> String {
        let deadline = Instant::now() + NOTICE;
        while !self.page.has_ended() {
            assert!(Instant::now() < deadline, "not expelled");
            std::thread::sleep(Duration::from_millis(1));
        }
        format!(
            "{:?}",
            self.connection.call(&Request::Fate).unwrap().message
        )
    }
}

#[test]
fn a_descriptor_into_another_workers_memory_is_refused() {
    let rig = Rig::start();
    beside_a_healthy_tenant(&rig, || {
        let mut victim = Liar::join(&rig, "job", 0, 2);
        let mut liar = Liar::join(&rig, "job", 1, 2);
        let secret = [0x5a; 4096];
        let buffers = victim.joined.layout.buffers_offset;
        victim.memory.write_at(buffers, &secret).unwrap();
        let good = liar.descriptor();
        let theirs = victim.joined.iova + buffers;
        let end = liar.joined.iova + liar.joined.layout.arena_bytes;
        for bad in [
            Descriptor {
                src: theirs,
                ..good
            },
            Descriptor {
                dst: theirs,
                ..good
            },
            Descriptor {
                src: theirs,
                dst: theirs,
                ..good
            },
            Descriptor {
                src: end - 128,
                ..good
            },
            Descriptor { dst: end, ..good },
            Descriptor {
                src: u64::MAX - 63,
                ..good
            },
            Descriptor { dst: 0, ..good },
        ] {
            assert_eq!(
                Status::from_code(liar.submit(&bad).status),
                Some(Status::OutOfWindow),
                "{bad:?}"
            );
        }
        let mut after = [0; 4096];
        victim.memory.read_at(buffers, &mut after).unwrap();
        assert_eq!(after, secret);
        // Neither is out of its epoch: the refused descriptors touched no slot.
        std::thread::scope(|scope| {
            let theirs = scope.spawn(|| victim.submit(&victim.descriptor()));
            assert_eq!(liar.submit(&good).status, Status::Ok.code());
            assert_eq!(theirs.join().unwrap().contributors, 0b11);
        });
    });
}

#[test]
fn nonsense_in_the_submission_ring_gets_its_status() {
    let rig = Rig::start();
    beside_a_healthy_tenant(&rig, || {
        let mut liar = Liar::join(&rig, "job", 0, 1);
        let good = liar.descriptor();
        for (bad, status) in [
            (Descriptor { opcode: 0, ..good }, Status::BadOpcode),
            (
                Descriptor {
                    opcode: 255,
                    ..good
                },
                Status::BadOpcode,
            ),
            (
                Descriptor {
                    flags: Flags(0x80),
                    ..good
                },
                Status::BadOpcode,
            ),
            (
                Descriptor {
                    flags: Flags::WAIVE,
                    ..good
                },
                Status::BadOpcode,
            ),
            (
                Descriptor {
                    reserved: [1; 24],
                    ..good
                },
                Status::BadOpcode,
            ),
            (Descriptor { length: 0, ..good }, Status::BadLength),
            (Descriptor { length: 6, ..good }, Status::BadLength),
            (
                Descriptor {
                    length: u32::MAX,
                    ..good
                },
                Status::BadLength,
            ),
            (
                Descriptor {
                    length: 1 << 30,
                    ..good
                },
                Status::OutOfWindow,
            ),
            (
                Descriptor {
                    src: good.src + 4,
                    ..good
                },
                Status::BadAlign,
            ),
            (
                Descriptor {
                    epoch: good.epoch.wrapping_sub(1),
                    ..good
                },
                Status::StaleEpoch,
            ),
            (
                Descriptor {
                    epoch: good.epoch.wrapping_add(1),
                    ..good
                },
                Status::StaleEpoch,
            ),
            (
                Descriptor {
                    flags: Flags::CRC,
                    crc: 1,
                    ..good
                },
                Status::CrcError,
            ),
        ] {
            assert_eq!(
                Status::from_code(liar.submit(&bad).status),
                Some(status),
                "{bad:?}"
            );
        }
    });
}

#[test]
fn nonsense_in_the_shadow_doorbells_expels_its_worker() {
    let rig = Rig::start();
    beside_a_healthy_tenant(&rig, || {
        let cases: [fn(&mut Liar); 4] = [
            |liar| liar.ring(u16::MAX),
            |liar| liar.ring(1 << liar.joined.layout.sq_log2),
            |liar| {
                liar.page.ring_cq(u16::MAX);
                liar.ring(0);
                rustix::io::write(&liar.kick, &[1]).unwrap();
            },
            |liar| {
                // Inside the ring, but nothing was completed: only the card can know.
                liar.page.ring_cq(700);
                rustix::io::write(&liar.kick, &[1]).unwrap();
            },
        ];
        for case in cases {
            let peer = rig.join("job", 0, 2);
            let mut liar = Liar::join(&rig, "job", 1, 2);
            case(&mut liar);
            let fate = liar.fate();
            assert!(
                fate.contains("Expelled") && fate.contains("rank: 1"),
                "{fate}"
            );
            let error = peer.push_pull("t", &mut [1.0], Reduce::Sum).unwrap_err();
            assert!(
                matches!(&error, Error::PeerLost { missing, .. } if *missing == [1]),
                "{error}"
            );
        }
    });
}

#[test]
fn a_worker_may_write_anything_anywhere_in_its_arena() {
    use rand::{Rng, RngExt};
    let rig = Rig::start();
    let mut rng = phub_tests::seed::rng("a_worker_may_write_anything", 11);
    beside_a_healthy_tenant(&rig, || {
        for _ in 0..20 {
            let liar = Liar::join(&rig, "job", 0, 1);
            let mut noise = vec![0; liar.joined.layout.buffers_offset as usize];
            rng.fill_bytes(&mut noise);
            liar.memory.write_at(0, &noise).unwrap();
            for _ in 0..10 {
                liar.ring(rng.random::<u16>() & 1023);
                let _ = rustix::io::write(&liar.kick, &[1; 100]);
            }
        }
        // One that closes its kick socket, one that truncates its arena.
        let liar = Liar::join(&rig, "job", 0, 1);
        drop(liar.kick);
        let other = Liar::join(&rig, "job2", 0, 1);
        assert!(rustix::fs::ftruncate(other.memory.fd(), 0).is_err());
        rig.admin().info().unwrap();
        drop(liar.connection);
    });
}
