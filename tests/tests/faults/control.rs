// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Somebody lies to the hub, over the control socket.

use std::os::fd::OwnedFd;
use std::time::Duration;

use phub::control::MESSAGE_MAX;
use phub::{Error, JoinOptions, Refusal};
use phub_tests::running::CardKind;

use crate::hub::{NOTICE, Rig, TOKEN};
use crate::{beside_a_healthy_tenant, on_every_card};

on_every_card!(
    lies_about_tenant_rank_and_world_are_refused,
    more_workers_than_queues_are_refused,
    garbage_on_the_control_socket_harms_only_its_sender,
);

fn lies_about_tenant_rank_and_world_are_refused(card: CardKind) {
    let rig = Rig::start(card);
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
    let rig = Rig::with(card, |config| config.auto_create = false);
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

fn more_workers_than_queues_are_refused(card: CardKind) {
    let rig = Rig::start(card);
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

fn garbage_on_the_control_socket_harms_only_its_sender(card: CardKind) {
    use rustix::net::{
        AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send,
        socket_with,
    };
    let rig = Rig::start(card);
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
