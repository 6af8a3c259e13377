// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The driver on a golden card in another thread, behind a vfio-user socket.

use std::thread::JoinHandle;
use std::time::Duration;

use phub_driver::{CardAddress, Device, Error};
use phub_model::{GoldenCard, Params};
use phub_vfio_user::{Server, Stop};

use crate::bench::*;

struct Served {
    address: CardAddress,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

fn serve() -> Served {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("card.sock");
    let server = Server::bind(&path).unwrap();
    let stop = Stop::new().unwrap();
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || {
        server
            .run(&GoldenCard::new(Params::default()), &stopped)
            .unwrap();
    });
    Served {
        address: CardAddress::VfioUser(path),
        stop,
        thread: Some(thread),
        _dir: dir,
    }
}

impl Served {
    fn end(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn gradients_are_summed_through_the_socket() {
    let served = serve();
    // Twice: the second client finds a fresh card.
    for _ in 0..2 {
        let device = Device::open(&served.address).unwrap();
        assert_eq!(device.address(), served.address.to_string());
        let job = tenant(&device, 2);
        let mut workers: Vec<_> = (0..2)
            .map(|w| Worker::join(&device, &job, w).unwrap())
            .collect();
        for seq in 0..20 {
            for worker in &mut workers {
                worker.submit(seq as f32, seq).unwrap();
            }
            for worker in &mut workers {
                assert!(worker.event.wait(Duration::from_secs(1)).unwrap());
                assert_eq!(worker.result(), [2.0 * seq as f32; 16]);
            }
        }
    }
}

#[test]
fn a_simulator_that_ends_is_noticed() {
    let mut served = serve();
    let device = Device::open(&served.address).unwrap();
    let job = tenant(&device, 1);
    let worker = Worker::join(&device, &job, 0).unwrap();
    served.end();
    let error = bounded(|| device.abort_tenant(job.id).unwrap_err());
    assert!(matches!(error, Error::CardGone { .. }), "{error}");
    bounded(|| worker.queue.close().unwrap_err());
    bounded(|| drop(device));
}

#[test]
fn nobody_at_the_address_is_an_error() {
    let address = CardAddress::VfioUser("/nonexistent/card.sock".into());
    assert!(bounded(|| Device::open(&address)).is_err());
}
