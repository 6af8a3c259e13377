// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! What can be seen of a running card.

use phub_abi::{PCI_DEVICE, PCI_VENDOR};
use phub_model::Params;

use crate::bench::*;

#[test]
fn a_card_says_what_it_is() {
    let params = Params {
        tenants: 3,
        workers: 5,
        queues: 7,
        slots: 32,
        seg_bytes: 256,
        ..Params::default()
    };
    let card = golden(params);
    let device = open(&card).unwrap();
    let identity = device.identity();
    assert_eq!((identity.abi_major, identity.abi_minor), (1, 0));
    assert_eq!(
        (identity.tenants, identity.workers, identity.queues),
        (3, 5, 7)
    );
    assert_eq!(
        (identity.slots, identity.segment_bytes, identity.vectors),
        (32, 256, 8)
    );
    assert!(identity.sum && identity.mean && identity.crc);
    let pci = device.pci_info().unwrap();
    assert_eq!(
        (pci.vendor, pci.device, pci.msix_vectors),
        (PCI_VENDOR, PCI_DEVICE, 8)
    );
    assert!(pci.function_level_reset);
    let json = serde_json::to_value(identity).unwrap();
    assert_eq!(json["segment_bytes"], 256);
}

#[test]
fn open_slots_tell_who_is_missing() {
    let (_card, device) = device();
    let job = tenant(&device, 3);
    let mut first = Worker::join(&device, &job, 0).unwrap();
    let mut last = Worker::join(&device, &job, 2).unwrap();
    first.submit(1.0, 0).unwrap();
    first.submit(1.0, 1).unwrap();
    last.submit(1.0, 0).unwrap();
    let slots = device.slots().unwrap();
    let seen: Vec<_> = slots
        .iter()
        .map(|s| (s.seq, s.contributed, s.joined, s.left, s.complete))
        .collect();
    assert_eq!(
        seen,
        [(0, 0b101, 0b101, 0, false), (1, 0b001, 0b001, 0, false)]
    );
    assert!(
        slots
            .iter()
            .all(|s| (s.tenant, s.workers, s.key, s.bytes) == (job.id.index, 3, 1, 64))
    );
    assert_eq!(slots[0].slot, job.slot_base);
    device.abort_tenant(job.id).unwrap();
    assert_eq!(device.slots().unwrap(), []);
}

#[test]
fn the_clock_and_the_beats_advance() {
    let (_card, device) = device();
    let job = tenant(&device, 1);
    let before = (device.cycles().unwrap(), device.perf().unwrap());
    let mut worker = Worker::join(&device, &job, 0).unwrap();
    worker.submit(1.0, 0).unwrap();
    worker.result();
    assert!(device.cycles().unwrap() > before.0);
    assert_eq!(device.perf().unwrap().since(&before.1).beats_in, 1);
}
