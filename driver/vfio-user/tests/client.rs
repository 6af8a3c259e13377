// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A client against servers that work, lie, are slow, or die.

mod common;

use std::{
    io::{Read, Write},
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    time::{Duration, Instant},
};

use common::*;
use phub_pci::{PciError, PciFunction};
use phub_vfio_user::Client;

const TIMEOUT: Duration = Duration::from_millis(300);

#[test]
fn everything_a_driver_does_arrives() {
    let served = Served::start();
    let client = Client::connect(&served.path, Client::TIMEOUT).unwrap();
    assert_eq!((client.bar_bytes(), client.vectors()), (BAR_BYTES, VECTORS));
    assert_eq!(
        client.address(),
        format!("vfio-user:{}", served.path.display())
    );

    let mut id = [0; 4];
    client.config_read(0, &mut id).unwrap();
    assert_eq!(id, [0x34, 0x12, 0x48, 0x50]);
    client.config_write(4, &[6, 0]).unwrap();
    let mut command = [0; 2];
    client.config_read(4, &mut command).unwrap();
    assert_eq!(command, [6, 0]);

    let memory = memory(4);
    memory.write_at(0x2004, &77u32.to_le_bytes()).unwrap();
    client.dma_map(0x8000, &memory, 0x2000, 0x1000).unwrap();
    client.bar_write(DMA_ADDRESS, 0x8004).unwrap();
    assert_eq!(client.bar_read(DMA_DATA).unwrap(), 77);
    client.dma_unmap(0x8000, 0x1000).unwrap();
    client.bar_write(DMA_ADDRESS, 0x8004).unwrap();
    assert_eq!(client.bar_read(DMA_DATA).unwrap(), u32::MAX);

    let fds: Vec<_> = (0..VECTORS).map(|_| eventfd()).collect();
    client
        .set_interrupts(&fds.iter().map(|fd| fd.as_fd()).collect::<Vec<_>>())
        .unwrap();
    for vector in [0, 31, 32, 64] {
        client.bar_write(RAISE, vector).unwrap();
        client.bar_read(0).unwrap();
        assert_eq!(count(&fds[vector as usize]), 1, "vector {vector}");
    }
    client.set_interrupts(&[fds[5].as_fd()]).unwrap();
    client.bar_write(RAISE, 0).unwrap();
    client.bar_write(RAISE, 64).unwrap();
    client.bar_read(0).unwrap();
    assert_eq!(
        (count(&fds[5]), count(&fds[64])),
        (1, 0),
        "fewer leave the rest unconnected"
    );

    client.reset().unwrap();
    assert_eq!(client.bar_read(DMA_DATA).unwrap(), 0);
    assert_eq!(served.toy.0.lock().unwrap().resets, 1);
}

#[test]
fn refusals_carry_their_reason() {
    let served = Served::start();
    let client = Client::connect(&served.path, Client::TIMEOUT).unwrap();
    let memory = memory(1);
    client.dma_map(0x1000, &memory, 0, 0x1000).unwrap();
    let error = client.dma_map(0x1000, &memory, 0, 0x1000).unwrap_err();
    let PciError::System { source, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(source.kind(), std::io::ErrorKind::AlreadyExists);
    assert!(matches!(
        client.dma_map(0, &memory, 0, 0x2000),
        Err(PciError::Mapping { .. })
    ));
    assert!(matches!(
        client.bar_read(2),
        Err(PciError::OutOfRange { .. })
    ));
    assert!(matches!(
        client.bar_write(BAR_BYTES, 0),
        Err(PciError::OutOfRange { .. })
    ));
    assert!(matches!(
        client.config_read(4095, &mut [0; 2]),
        Err(PciError::OutOfRange { .. })
    ));
    let fd = eventfd();
    let many: Vec<_> = (0..=VECTORS).map(|_| fd.as_fd()).collect();
    assert!(matches!(
        client.set_interrupts(&many),
        Err(PciError::Vectors { .. })
    ));
    assert_eq!(
        client.bar_read(0).unwrap(),
        0,
        "the connection is as good as before"
    );
}

#[test]
fn threads_share_a_client() {
    let served = Served::start();
    let client = Client::connect(&served.path, Client::TIMEOUT).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let client = &client;
            scope.spawn(move || {
                for i in 0..200 {
                    let at = 0x200 + 4 * thread;
                    client.bar_write(at, i).unwrap();
                    assert_eq!(client.bar_read(at).unwrap(), i);
                }
            });
        }
    });
}

#[test]
fn nobody_at_the_socket_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let error = Client::connect(&dir.path().join("none.sock"), TIMEOUT)
        .err()
        .unwrap();
    assert!(error.to_string().contains("phub-sim serve"), "{error}");
}

#[test]
fn a_dead_server_is_gone_for_every_call() {
    let mut served = Served::start();
    let client = Client::connect(&served.path, Client::TIMEOUT).unwrap();
    served.end();
    assert!(matches!(client.bar_read(0), Err(PciError::Gone { .. })));
    assert!(matches!(client.bar_write(0, 1), Err(PciError::Gone { .. })));
    assert!(matches!(
        client.config_read(0, &mut [0; 4]),
        Err(PciError::Gone { .. })
    ));
    assert!(matches!(
        client.dma_map(0, &memory(1), 0, 4096),
        Err(PciError::Gone { .. })
    ));
    assert!(matches!(
        client.dma_unmap(0, 4096),
        Err(PciError::Gone { .. })
    ));
    assert!(matches!(
        client.set_interrupts(&[]),
        Err(PciError::Gone { .. })
    ));
    assert!(matches!(client.reset(), Err(PciError::Gone { .. })));
}

#[test]
fn a_posted_write_to_a_dead_server_is_noticed() {
    let mut served = Served::start();
    let client = Client::connect(&served.path, Client::TIMEOUT).unwrap();
    served.end();
    assert!(matches!(client.bar_write(0, 1), Err(PciError::Gone { .. })));
}

/// A server that answers the first messages well and then does as `then` says.
fn server(then: impl FnOnce(UnixStream) + Send + 'static) -> (PathBuf, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let (mut s, _) = listener.accept().unwrap();
        for body in [
            vec![0; 4],
            [vec![0; 16], vec![0, 0, 1, 0, 0, 0, 0, 0]].concat(),
            vec![2; 16],
        ] {
            let id = request(&mut s);
            reply(&mut s, id, 1, 0, &body);
        }
        then(s);
    });
    (path, dir)
}

/// Takes one message; its id.
fn request(s: &mut UnixStream) -> [u8; 2] {
    let mut head = [0; 16];
    s.read_exact(&mut head).unwrap();
    let size = u32::from_le_bytes(head[4..8].try_into().unwrap());
    s.read_exact(&mut vec![0; size as usize - 16]).unwrap();
    [head[0], head[1]]
}

fn reply(s: &mut UnixStream, id: [u8; 2], flags: u32, errno: u32, body: &[u8]) {
    let size = 16 + body.len() as u32;
    let m = [
        &id[..],
        &[9, 0],
        &size.to_le_bytes(),
        &flags.to_le_bytes(),
        &errno.to_le_bytes(),
        body,
    ];
    s.write_all(&m.concat()).unwrap();
}

#[test]
fn a_server_that_never_answers_times_out_once_and_is_gone_then() {
    let (path, _dir) = server(|s| {
        std::thread::sleep(Duration::from_secs(3));
        drop(s);
    });
    let client = Client::connect(&path, TIMEOUT).unwrap();
    let start = Instant::now();
    assert!(matches!(client.bar_read(0), Err(PciError::Timeout { .. })));
    assert!(start.elapsed() >= TIMEOUT);
    for _ in 0..10 {
        assert!(matches!(client.bar_read(0), Err(PciError::Gone { .. })));
    }
    assert!(
        start.elapsed() < 4 * TIMEOUT,
        "later calls do not wait again"
    );
}

#[test]
fn a_server_that_does_not_even_say_its_version_times_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _listener = UnixListener::bind(&path).unwrap();
    let start = Instant::now();
    assert!(matches!(
        Client::connect(&path, TIMEOUT),
        Err(PciError::Timeout { .. })
    ));
    assert!(start.elapsed() < 4 * TIMEOUT);
}

#[test]
fn half_a_reply_is_not_an_answer() {
    let (path, _dir) = server(|mut s| {
        let id = request(&mut s);
        let head = [
            &id[..],
            &[9, 0, 36, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            &[0; 10],
        ]
        .concat();
        s.write_all(&head).unwrap();
    });
    let client = Client::connect(&path, TIMEOUT).unwrap();
    assert!(matches!(client.bar_read(0), Err(PciError::Gone { .. })));
}

#[test]
fn a_reply_with_too_little_data_is_an_error() {
    let (path, _dir) = server(|mut s| {
        let id = request(&mut s);
        reply(&mut s, id, 1, 0, &[0; 18]);
        let id = request(&mut s);
        reply(&mut s, id, 1, 0, &[7; 20]);
    });
    let client = Client::connect(&path, TIMEOUT).unwrap();
    assert!(matches!(client.bar_read(0), Err(PciError::System { .. })));
    assert_eq!(
        client.bar_read(0).unwrap(),
        0x0707_0707,
        "the stream is in step"
    );
}

#[test]
fn a_reply_of_absurd_size_allocates_nothing() {
    let (path, _dir) = server(|mut s| {
        let id = request(&mut s);
        s.write_all(
            &[
                &id[..],
                &[9, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0],
            ]
            .concat(),
        )
        .unwrap();
        std::thread::sleep(Duration::from_secs(1));
    });
    let client = Client::connect(&path, TIMEOUT).unwrap();
    assert!(matches!(client.bar_read(0), Err(PciError::Gone { .. })));
}

#[test]
fn an_error_reply_is_an_error() {
    let (path, _dir) = server(|mut s| {
        let id = request(&mut s);
        reply(&mut s, id, 0x21, 12, &[]);
        let id = request(&mut s);
        reply(&mut s, id, 0x21, 19, &[]);
    });
    let client = Client::connect(&path, TIMEOUT).unwrap();
    let Err(PciError::System { source, .. }) = client.bar_read(0) else {
        panic!()
    };
    assert_eq!(source.raw_os_error(), Some(12));
    assert!(
        matches!(client.bar_read(0), Err(PciError::Gone { .. })),
        "no such device"
    );
}

#[test]
fn replies_nobody_asked_for_and_server_requests_are_passed_over() {
    let (path, _dir) = server(|mut s| {
        let id = request(&mut s);
        reply(&mut s, [id[0].wrapping_add(9), 3], 1, 0, &[1; 20]);
        reply(&mut s, [1, 1], 0, 0, &[0; 16]); // flags 0: a command, DMA_READ-like
        let mut refusal = [0; 16];
        s.read_exact(&mut refusal).unwrap();
        assert_eq!(refusal[8], 0x21, "a request for DMA is refused");
        reply(&mut s, id, 1, 0, &[5; 20]);
    });
    let client = Client::connect(&path, TIMEOUT).unwrap();
    assert_eq!(client.bar_read(0).unwrap(), 0x0505_0505);
}
