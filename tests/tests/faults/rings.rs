// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Somebody lies to the card, in its own rings and doorbells.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use phub::control::{Connection, ControlPage, Join, Joined, Reply, Request};
use phub::{Error, Reduce};
use phub_abi::{Completion, Descriptor, Flags, Opcode, Status};
use phub_driver::ring::{CompletionQueue, SubmissionQueue};
use phub_sys::{EventFd, Memory};
use phub_tests::running::CardKind;
use rustix::io::Errno;

use crate::hub::{NOTICE, Rig, TOKEN};
use crate::{beside_a_healthy_tenant, on_every_card};

on_every_card!(
    a_descriptor_into_another_workers_memory_is_refused,
    nonsense_in_the_submission_ring_gets_its_status,
    nonsense_in_the_shadow_doorbells_expels_its_worker,
    a_worker_may_write_anything_anywhere_in_its_arena,
);

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

fn a_descriptor_into_another_workers_memory_is_refused(card: CardKind) {
    let rig = Rig::start(card);
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

fn nonsense_in_the_submission_ring_gets_its_status(card: CardKind) {
    let rig = Rig::start(card);
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

fn nonsense_in_the_shadow_doorbells_expels_its_worker(card: CardKind) {
    let rig = Rig::start(card);
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

fn a_worker_may_write_anything_anywhere_in_its_arena(card: CardKind) {
    use rand::{Rng, RngExt};
    let rig = Rig::start(card);
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
