// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A server against clients that are broken, slow, greedy or hostile.

mod common;

use std::{
    io::Write,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use common::*;
use phub_pci::PciFunction;
use phub_vfio_user::{Client, Server, ServerError, Stop};

const EINVAL: u32 = 22;
const EEXIST: u32 = 17;
const ENOSYS: u32 = 38;
const VERSION: u16 = 1;
const MAP: u16 = 2;
const UNMAP: u16 = 3;
const REGION_INFO: u16 = 5;
const IRQ_INFO: u16 = 7;
const SET_IRQS: u16 = 8;
const READ: u16 = 9;
const WRITE: u16 = 10;

/// The server still works: a well-behaved client gets through.
fn still_serving(served: &Served) {
    let mut client = None;
    eventually("a new client is let in", || {
        client = Client::connect(&served.path, Duration::from_secs(5)).ok();
        client.is_some()
    });
    let client = client.unwrap();
    client.bar_write(0x40, 0x1234).unwrap();
    assert_eq!(client.bar_read(0x40).unwrap(), 0x1234);
}

#[test]
fn nothing_works_before_the_version_message() {
    let served = Served::start();
    let mut raw = Raw::connect(&served.path);
    assert_eq!(raw.refused(READ, &access(0, 0, 4, &[])), EINVAL);
    assert_eq!(raw.ask(VERSION, &[0, 0, 0, 0]).unwrap().0, 1);
    assert_eq!(
        raw.refused(VERSION, &[0, 0, 0, 0]),
        EINVAL,
        "only one version message"
    );
    assert_eq!(raw.ask(READ, &access(0, 0, 4, &[])).unwrap().2.len(), 20);
}

#[test]
fn another_major_version_is_refused() {
    let served = Served::start();
    let mut raw = Raw::connect(&served.path);
    raw.refused(VERSION, &[1, 0, 0, 0]);
    raw.refused(VERSION, b"\0\0\0\0{\"capabilities\":");
    assert_eq!(
        raw.ask(VERSION, &[0, 0, 9, 0]).unwrap().0,
        1,
        "a newer minor version is fine"
    );
}

#[test]
fn every_truncated_body_is_refused_and_the_stream_stays_in_step() {
    let served = Served::start();
    let mut raw = Raw::introduced(&served.path);
    let whole: [(u16, Vec<u8>); 6] = [
        (MAP, map_body(Some(0), 0x1000, 0x1000)),
        (UNMAP, map_body(None, 0x1000, 0x1000)),
        (REGION_INFO, words(&[32, 0, 0])),
        (IRQ_INFO, words(&[16, 0, 2])),
        (SET_IRQS, words(&[20, 0x24, 2, 0, 0])),
        (WRITE, access(0, 0, 4, &[1, 2, 3, 4])),
    ];
    for (command, body) in whole {
        for cut in 0..body.len() {
            assert_eq!(
                raw.refused(command, &body[..cut]),
                EINVAL,
                "{command} cut to {cut}"
            );
        }
        assert_eq!(raw.ask(command, &body).unwrap().0, 1, "{command} whole");
    }
}

#[test]
fn unknown_commands_are_drained_and_refused() {
    let served = Served::start();
    let mut raw = Raw::introduced(&served.path);
    for command in [0, 6, 11, 12, 14, 15, 0xffff] {
        assert_eq!(raw.refused(command, &[0xee; 1000]), ENOSYS);
    }
    assert_eq!(raw.ask(READ, &access(0, 0, 4, &[])).unwrap().0, 1);
}

#[test]
fn wrong_regions_and_ranges_are_refused() {
    let served = Served::start();
    let mut raw = Raw::introduced(&served.path);
    let bar = u64::from(BAR_BYTES);
    for (region, offset, count) in [
        (0, bar, 4),
        (0, bar - 4, 8),
        (0, 2, 4),
        (0, 0, 3),
        (0, 0, 8192),
        (0, u64::MAX - 3, 4),
        (1, 0, 4),
        (2, 4094, 4),
        (7, 4094, 4),
        (7, 0, 4097),
        (8, 0, 1),
        (9, 0, 4),
        (u32::MAX, 0, 4),
        (0, 0, u32::MAX - 3),
    ] {
        assert_eq!(
            raw.refused(READ, &access(region, offset, count, &[])),
            EINVAL,
            "{region}"
        );
        assert_eq!(
            raw.refused(WRITE, &access(region, offset, count, &[0; 64])),
            EINVAL
        );
    }
    assert_eq!(raw.refused(REGION_INFO, &words(&[32, 0, 9])), EINVAL);
    assert_eq!(raw.refused(IRQ_INFO, &words(&[16, 0, 5])), EINVAL);
    assert_eq!(raw.refused(SET_IRQS, &words(&[20, 0x21, 2, 60, 6])), EINVAL);
    assert_eq!(
        raw.refused(SET_IRQS, &words(&[20, 0x21, 2, u32::MAX, 2])),
        EINVAL
    );
    assert_eq!(
        raw.refused(SET_IRQS, &words(&[20, 0x08, 2, 0, 1])),
        EINVAL,
        "masking"
    );
}

#[test]
fn regions_read_whole_and_in_odd_pieces() {
    let served = Served::start();
    let mut raw = Raw::introduced(&served.path);
    let (_, _, config) = raw.ask(READ, &access(7, 0, 4096, &[])).unwrap();
    assert_eq!(config[16..20], [0x34, 0x12, 0x48, 0x50]);
    let (_, _, piece) = raw.ask(READ, &access(7, 1, 3, &[])).unwrap();
    assert_eq!(piece[16..], config[17..20]);
    let (_, _, table) = raw.ask(READ, &access(2, 5, 100, &[])).unwrap();
    assert!(table[16..].iter().all(|b| *b == 0));
    raw.ask(WRITE, &access(0, 8, 8, &[1, 0, 0, 0, 2, 0, 0, 0]))
        .unwrap();
    let (_, _, pair) = raw.ask(READ, &access(0, 8, 8, &[])).unwrap();
    assert_eq!(pair[16..], [1, 0, 0, 0, 2, 0, 0, 0]);
}

#[test]
fn sizes_that_lie_end_the_connection_and_nothing_else() {
    let served = Served::start();
    for size in [0u32, 15, (1 << 20) + 65, 1 << 31, u32::MAX] {
        let mut raw = Raw::introduced(&served.path);
        let mut message = Raw::message(READ, &access(0, 0, 4, &[]));
        message[4..8].copy_from_slice(&size.to_le_bytes());
        raw.0.write_all(&message).unwrap();
        assert!(raw.hung_up(), "size {size}");
    }
    still_serving(&served);
}

#[test]
fn a_message_that_never_ends_costs_the_client_its_place() {
    let served = Served::start();
    let mut raw = Raw::introduced(&served.path);
    raw.0
        .write_all(&Raw::message(READ, &access(0, 0, 4, &[]))[..20])
        .unwrap();
    let start = Instant::now();
    assert!(raw.hung_up());
    assert!(start.elapsed() < Duration::from_secs(8));
    still_serving(&served);
}

#[test]
fn a_client_that_takes_no_replies_is_dropped() {
    let served = Served::start();
    let mut raw = Raw::introduced(&served.path);
    raw.0
        .set_write_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let ask = Raw::message(READ, &access(7, 0, 4096, &[]));
    while raw.0.write_all(&ask).is_ok() {}
    std::thread::sleep(Duration::from_secs(6));
    still_serving(&served);
}

#[test]
fn bytes_at_random_never_stop_the_server() {
    let served = Served::start();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..200 {
        let mut raw = Raw::introduced(&served.path);
        let len = (random() % 120) as usize;
        let body: Vec<u8> = (0..len).map(|_| (random() % 9) as u8).collect();
        let mut message = Raw::message((random() % 17) as u16, &body);
        if random() % 4 == 0 {
            let at = (random() % message.len() as u64) as usize;
            message[at] ^= random() as u8;
        }
        let _ = raw.0.write_all(&message);
    }
    still_serving(&served);
}

#[test]
fn mappings_are_checked() {
    let served = Served::start();
    let mut raw = Raw::introduced(&served.path);
    let fd = memfd(0x4000);
    let mut map = |offset, iova, len, with_fd: bool| {
        let message = Raw::message(MAP, &map_body(Some(offset), iova, len));
        if with_fd {
            raw.send_with_fds(&message, &[fd.as_fd()]);
        } else {
            raw.0.write_all(&message).unwrap();
        }
        raw.reply().unwrap().1
    };
    assert_eq!(map(0, 0x10_0000, 0x2000, true), 0);
    assert_eq!(map(0, 0x10_1000, 0x1000, true), EEXIST, "overlap");
    assert_eq!(map(0, 0xf_f000, 0x2000, true), EEXIST, "overlap from below");
    assert_eq!(map(0x2000, 0x10_2000, 0x2000, true), 0, "next to it");
    assert_eq!(
        map(0x3000, 0x20_0000, 0x2000, true),
        EINVAL,
        "past the end of the file"
    );
    assert_eq!(map(1 << 63, 0x20_0000, 1 << 63, true), EINVAL, "overflow");
    assert_eq!(
        map(0, u64::MAX - 0xfff, 0x2000, true),
        EINVAL,
        "past the end of addresses"
    );
    assert_eq!(map(0, 0x20_0001, 0x1000, true), EINVAL, "misaligned");
    assert_eq!(map(0, 0x20_0000, 0, true), EINVAL, "empty");
    assert_eq!(
        map(0, 0x20_0000, 0x1000, false),
        0,
        "without memory: address space only"
    );
    assert_eq!(
        served.toy.0.lock().unwrap().mapped.len(),
        2,
        "only those with memory"
    );

    let mut unmap = |iova, len| raw.ask(UNMAP, &map_body(None, iova, len)).unwrap().1;
    assert_eq!(unmap(0x10_0000, 0x1000), EINVAL, "half a mapping");
    assert_eq!(unmap(0x10_1000, 0x1000), EINVAL, "the other half");
    assert_eq!(unmap(0x50_0000, 0x1000), 0, "nothing there");
    assert_eq!(unmap(0x10_0000, 0x4000), 0, "two at once");
    assert_eq!(unmap(0x20_0000, 0x1000), 0);
    assert_eq!(
        unmap(1 << 63, 1 << 63),
        0,
        "to the end of the address space"
    );
    assert_eq!(unmap(1 << 63, (1 << 63) + 0x1000), EINVAL, "past it");
    assert!(served.toy.0.lock().unwrap().mapped.is_empty());
}

#[test]
fn memory_that_is_no_memory_is_refused() {
    let served = Served::start();
    let mut raw = Raw::introduced(&served.path);
    let message = Raw::message(MAP, &map_body(Some(0), 0x1000, 0x1000));
    raw.send_with_fds(&message, &[eventfd().as_fd()]);
    assert_ne!(raw.reply().unwrap().1, 0);
    raw.send_with_fds(&message, &[memfd(0x1000).as_fd(), memfd(0x1000).as_fd()]);
    assert_eq!(raw.reply().unwrap().1, EINVAL, "two files for one mapping");
    assert!(served.toy.0.lock().unwrap().mapped.is_empty());
}

#[test]
fn a_flood_of_file_descriptors_ends_the_connection() {
    let served = Served::start();
    let mut raw = Raw::introduced(&served.path);
    let fd = eventfd();
    let fds: Vec<_> = (0..200).map(|_| fd.as_fd()).collect();
    raw.send_with_fds(&Raw::message(SET_IRQS, &words(&[20, 0x24, 2, 0, 65])), &fds);
    assert!(raw.hung_up());
    still_serving(&served);
}

#[test]
fn vectors_can_be_set_with_gaps_and_raised_by_message() {
    let served = Served::start();
    let mut raw = Raw::introduced(&served.path);
    let fd = eventfd();
    raw.send_with_fds(
        &Raw::message(SET_IRQS, &words(&[20, 0x24, 2, 3, 1])),
        &[fd.as_fd()],
    );
    assert_eq!(raw.reply().unwrap().1, 0);
    for vector in [1, 3] {
        raw.ask(WRITE, &access(0, RAISE.into(), 4, &words(&[vector])))
            .unwrap();
    }
    assert_eq!(count(&fd), 1, "vector 3 only");
    assert_eq!(
        raw.ask(SET_IRQS, &words(&[20, 0x21, 2, 3, 1])).unwrap().1,
        0
    );
    assert_eq!(count(&fd), 1, "raised by message");
    assert_eq!(
        raw.ask(SET_IRQS, &words(&[20, 0x24, 2, 3, 1])).unwrap().1,
        0
    );
    raw.ask(WRITE, &access(0, RAISE.into(), 4, &words(&[3])))
        .unwrap();
    assert_eq!(
        count(&fd),
        0,
        "an eventfd message without descriptors disconnects"
    );
}

#[test]
fn a_second_client_is_turned_away_and_welcome_afterwards() {
    let served = Served::start();
    let first = Client::connect(&served.path, Duration::from_secs(5)).unwrap();
    let error = Client::connect(&served.path, Duration::from_secs(5))
        .err()
        .unwrap();
    assert!(error.to_string().contains("another client"), "{error}");
    assert_eq!(first.bar_read(0).unwrap(), 0, "the first is not disturbed");
    drop(first);
    still_serving(&served);
}

#[test]
fn a_client_that_leaves_leaves_nothing_behind() {
    let served = Served::start();
    let fd = eventfd();
    {
        let client = Client::connect(&served.path, Duration::from_secs(5)).unwrap();
        client.dma_map(0x1000, &memory(2), 0, 0x2000).unwrap();
        client.set_interrupts(&[fd.as_fd()]).unwrap();
        client.bar_write(0x40, 1).unwrap();
        assert_eq!(client.bar_read(0x40).unwrap(), 1);
    }
    eventually("the server takes the card back", || {
        let state = served.toy.0.lock().unwrap();
        state.mapped.is_empty() && state.interrupts.is_empty() && state.resets == 1
    });
    let client = Client::connect(&served.path, Duration::from_secs(5)).unwrap();
    assert_eq!(client.bar_read(0x40).unwrap(), 0);
}

#[test]
fn stopping_ends_a_server_with_and_without_client_and_removes_the_socket() {
    let mut served = Served::start();
    served.end();
    assert!(!served.path.exists());

    let mut served = Served::start();
    let client = Client::connect(&served.path, Duration::from_secs(5)).unwrap();
    served.end();
    assert!(!served.path.exists());
    assert!(client.bar_read(0).is_err());
}

#[test]
fn a_socket_in_use_is_refused_a_stale_one_replaced_a_file_left_alone() {
    let served = Served::start();
    assert!(matches!(
        Server::bind(&served.path),
        Err(ServerError::InUse { .. })
    ));
    still_serving(&served);

    let dir = tempfile::tempdir().unwrap();
    let stale = dir.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    assert!(stale.exists());
    drop(Server::bind(&stale).unwrap());
    assert!(!stale.exists());

    let file = dir.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    assert!(matches!(
        Server::bind(&file),
        Err(ServerError::NotASocket { .. })
    ));
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

#[test]
fn a_raised_stop_ends_a_server_before_it_begins() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::bind(&dir.path().join("s")).unwrap();
    let stop = Stop::new().unwrap();
    stop.stop();
    server.run(&Toy::default(), &stop).unwrap();
}
