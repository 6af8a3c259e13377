// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Tenants of a card that works.

use phub_abi::Status;
use phub_driver::{Error, TenantConfig};
use phub_model::Params;

use crate::bench::*;

#[test]
fn an_abort_ends_what_waits_and_begins_an_epoch() {
    let (_card, device) = device();
    let job = tenant(&device, 2);
    let mut worker = Worker::join(&device, &job, 1).unwrap();
    worker.submit(1.0, 0).unwrap();
    let epoch = device.abort_tenant(job.id).unwrap();
    assert_eq!(epoch, job.epoch + 1);
    let completion = worker.completion();
    assert_eq!(completion.status, Status::Aborted.code());
    assert_eq!(completion.contributors, 0b10);
    worker.submit(1.0, 1).unwrap();
    assert_eq!(worker.completion().status, Status::StaleEpoch.code());
    worker.epoch = epoch;
    let mut other = Worker::join(&device, &job, 0).unwrap();
    other.epoch = epoch;
    worker.submit(1.0, 0).unwrap();
    other.submit(2.0, 0).unwrap();
    assert_eq!(worker.result(), [3.0; 16]);
}

#[test]
fn a_tenant_with_queues_cannot_be_deleted() {
    let (_card, device) = device();
    let job = tenant(&device, 1);
    let worker = Worker::join(&device, &job, 0).unwrap();
    let error = device.delete_tenant(job.id).unwrap_err();
    assert!(
        matches!(error, Error::TenantBusy { queues: 1, .. }),
        "{error}"
    );
    drop(worker);
    device.delete_tenant(job.id).unwrap();
}

#[test]
fn an_old_name_does_not_reach_the_next_tenant() {
    let (_card, device) = device();
    let old = tenant(&device, 1);
    device.delete_tenant(old.id).unwrap();
    let new = tenant(&device, 1);
    assert_eq!(new.id.index, old.id.index);
    assert!(new.epoch > old.epoch, "an epoch is never used twice");
    let gone = |error: Error| matches!(error, Error::NoSuchTenant { tenant } if tenant == old.id);
    assert!(gone(device.abort_tenant(old.id).unwrap_err()));
    assert!(gone(device.delete_tenant(old.id).unwrap_err()));
    assert!(gone(device.counters(old.id).unwrap_err()));
    assert!(gone(Worker::join(&device, &old, 0).err().unwrap()));
    device.abort_tenant(new.id).unwrap();
}

#[test]
fn slots_of_a_deleted_tenant_are_as_new() {
    let card = golden(Params {
        slots: 4,
        ..Params::default()
    });
    let device = open(&card).unwrap();
    let config = TenantConfig {
        workers: 2,
        slots_log2: 2,
        token: 1,
    };
    for first in [1000, 5, 0] {
        let job = device.create_tenant(config).unwrap();
        let mut worker = Worker::join(&device, &job, 0).unwrap();
        // Left half done: the next tenant begins with lower numbers.
        worker.submit(1.0, first).unwrap();
        assert_eq!(device.slots().unwrap().len(), 1);
        drop(worker);
        device.delete_tenant(job.id).unwrap();
        assert_eq!(device.slots().unwrap(), []);
    }
    let job = device
        .create_tenant(TenantConfig {
            workers: 1,
            ..config
        })
        .unwrap();
    let mut worker = Worker::join(&device, &job, 0).unwrap();
    worker.submit(4.0, 0).unwrap();
    assert_eq!(worker.result(), [4.0; 16]);
}

#[test]
fn counters_are_the_tenants_own() {
    let (_card, device) = device();
    for rounds in [3, 5] {
        let job = tenant(&device, 1);
        let mut worker = Worker::join(&device, &job, 0).unwrap();
        for seq in 0..rounds {
            worker.submit(1.0, seq).unwrap();
            worker.result();
        }
        let counters = device.counters(job.id).unwrap();
        let rounds = u64::from(rounds);
        assert_eq!(counters.segments_in, rounds);
        assert_eq!(
            (counters.bytes_out, counters.completions),
            (64 * rounds, rounds)
        );
        assert_eq!(counters.aborts, 0);
        drop(worker);
        device.delete_tenant(job.id).unwrap();
    }
}

#[test]
fn tenants_and_slots_run_out() {
    let card = golden(Params {
        tenants: 2,
        slots: 16,
        ..Params::default()
    });
    let device = open(&card).unwrap();
    let create = |slots_log2| {
        device.create_tenant(TenantConfig {
            workers: 1,
            slots_log2,
            token: 0,
        })
    };
    let first = create(3).unwrap();
    let error = create(4).unwrap_err();
    assert!(
        matches!(
            error,
            Error::NoFreeSlots {
                wanted: 16,
                largest: 8
            }
        ),
        "{error}"
    );
    create(3).unwrap();
    let error = create(0).unwrap_err();
    assert!(
        matches!(error, Error::NoFreeTenant { tenants: 2 }),
        "{error}"
    );
    device.delete_tenant(first.id).unwrap();
    let error = create(4).unwrap_err();
    assert!(
        matches!(error, Error::NoFreeSlots { largest: 8, .. }),
        "{error}"
    );
    create(0).unwrap();
}

#[test]
fn tenants_that_cannot_be_are_refused() {
    let (_card, device) = device();
    for (workers, slots_log2) in [(0, 4), (65, 4), (1, 11), (1, u32::MAX)] {
        let error = device
            .create_tenant(TenantConfig {
                workers,
                slots_log2,
                token: 0,
            })
            .unwrap_err();
        assert!(matches!(error, Error::BadConfig { .. }), "{error}");
    }
    device
        .create_tenant(TenantConfig {
            workers: 64,
            slots_log2: 10,
            token: u64::MAX,
        })
        .unwrap();
}
