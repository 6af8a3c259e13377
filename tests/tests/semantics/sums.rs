// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Sums, means, broadcasts: what honest workers get.

use phub_abi::{CANONICAL_NAN, CompletionFlags, Descriptor, Flags, Status};
use phub_tests::card::Card;
use phub_tests::on_every_card;
use phub_tests::rack::{Buffer, Rack, Shape, Worker};

on_every_card!(
    every_world_size_and_tail,
    from_one_element_to_megabytes,
    mean_divides_by_the_contributors,
    push_then_pull,
    waive_then_others_pull,
    broadcast_by_pull,
    nobody_contributes,
    in_place,
    result_has_its_crc,
    payload_crc_is_checked,
    special_values,
    small_between_large,
    short_tails_to_one_slot,
    chunk_longer_than_the_slots,
    sequence_numbers_wrap,
    two_tenants_at_once,
    counters_count,
);

/// Whole numbers that differ by worker and place.
fn values(worker: u8, words: usize) -> Vec<f32> {
    (0..words)
        .map(|i| ((i % 1013) as f32) * 3.0 - 500.0 + f32::from(worker) * 7.0)
        .collect()
}

fn sum(workers: u8, words: usize) -> Vec<f32> {
    let mut sum = vec![0.0; words];
    for w in 0..workers {
        sum.iter_mut()
            .zip(values(w, words))
            .for_each(|(s, v)| *s += v);
    }
    sum
}

fn all_of(workers: u8) -> u64 {
    u64::MAX >> (64 - workers)
}

/// All workers exchange one chunk; each gets the sum.
fn exchange(workers: &mut [Worker], seq: u32, words: usize, flags: Flags) -> Vec<Buffer> {
    let mut results = Vec::new();
    for w in workers.iter_mut() {
        let src = w.floats(&values(w.rank, words));
        let dst = w.buffer(src.len);
        let descriptor = w.push_pull(seq, src, dst);
        w.submit(Descriptor {
            flags,
            ..descriptor
        });
        results.push(dst);
    }
    let n = workers.len() as u8;
    for w in workers.iter_mut() {
        let c = w.wait_for(Status::Ok);
        assert_eq!((c.contributors, c.count), (all_of(n), n.into()));
        assert_eq!(c.bytes as usize, 4 * words);
        assert_eq!(c.epoch, w.tenant.epoch);
        assert_eq!(u32::from(c.queue), w.queue);
    }
    results
}

fn every_world_size_and_tail(card: Card) {
    let segment = card.params.seg_bytes as usize / 4;
    let mut rack = Rack::new(card);
    for n in [1, 2, 3, 12] {
        let tenant = rack.tenant(n, 4);
        let mut workers = rack.workers(tenant);
        let mut seq = 0;
        for words in (1..=17).chain([
            segment - 1,
            segment,
            segment + 1,
            3 * segment + 5,
            8 * segment,
        ]) {
            let results = exchange(&mut workers, seq, words, Flags::NONE);
            for (w, dst) in workers.iter().zip(results) {
                assert_eq!(
                    w.read_floats(dst),
                    sum(n, words),
                    "{n} workers, {words} elements, worker {}",
                    w.rank
                );
            }
            seq += words.div_ceil(segment) as u32;
        }
    }
}

fn from_one_element_to_megabytes(card: Card) {
    let segment = card.params.seg_bytes as usize / 4;
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(2, 6);
    let mut workers = rack.workers_with(
        tenant,
        Shape {
            buffers: 16 << 20,
            ..Shape::default()
        },
    );
    let mut seq = 0;
    for words in [1, 1000, 8192, 65_536 + 3, 1 << 19] {
        let results = exchange(&mut workers, seq, words, Flags::NONE);
        for (w, dst) in workers.iter().zip(results) {
            assert!(
                w.read_floats(dst) == sum(2, words),
                "{words} elements, worker {}",
                w.rank
            );
        }
        seq += words.div_ceil(segment) as u32;
    }
}

fn mean_divides_by_the_contributors(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(3, 3);
    let mut workers = rack.workers(tenant);
    let results = exchange(&mut workers, 0, 300, Flags::MEAN);
    let mean: Vec<f32> = sum(3, 300)
        .iter()
        .map(|s| (f64::from(*s) / 3.0) as f32)
        .collect();
    for (w, dst) in workers.iter().zip(results) {
        assert_eq!(w.read_floats(dst), mean);
    }
    // One abstains: the sum of two is halved. MEAN is each worker's own wish.
    let src = [
        workers[0].floats(&[1.0, 5.0]),
        workers[1].floats(&[2.0, 7.0]),
    ];
    let dst: Vec<_> = workers.iter_mut().map(|w| w.buffer(8)).collect();
    for i in 0..2 {
        let d = workers[i].push_pull(2, src[i], dst[i]);
        workers[i].submit(Descriptor {
            flags: if i == 0 { Flags::MEAN } else { Flags::NONE },
            ..d
        });
    }
    let d = Descriptor {
        key: workers[0].push(2, src[0]).key,
        ..workers[2].pull(2, dst[2])
    };
    workers[2].submit(Descriptor {
        flags: Flags::MEAN,
        ..d
    });
    for (w, (dst, want)) in
        workers
            .iter_mut()
            .zip(dst.iter().zip([[1.5, 6.0], [3.0, 12.0], [1.5, 6.0]]))
    {
        let c = w.wait_for(Status::Ok);
        assert_eq!((c.contributors, c.count), (0b011, 2));
        assert_eq!(c.flags.contains(CompletionFlags::MEAN), w.rank != 1);
        assert_eq!(w.read_floats(*dst), want);
    }
}

fn push_then_pull(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(2, 3);
    let mut workers = rack.workers(tenant);
    let words = 700;
    for w in &mut workers {
        let src = w.floats(&values(w.rank, words));
        let push = w.push(0, src);
        let c = w.expect(push, Status::Ok);
        assert_eq!(
            (c.contributors, c.count, c.crc),
            (0, 0, 0),
            "a PUSH has no result to certify"
        );
        assert_eq!((c.bytes, c.seq), (4 * words as u32, 2));
    }
    for w in &mut workers {
        let dst = w.buffer(4 * words as u32);
        let pull = w.pull(0, dst);
        let c = w.expect(pull, Status::Ok);
        assert_eq!(c.contributors, 0b11);
        assert_eq!(w.read_floats(dst), sum(2, words));
    }
}

fn waive_then_others_pull(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(3, 1);
    let mut workers = rack.workers(tenant);
    // Eight rounds through two slots: waiving frees them.
    for round in 0..8 {
        for w in &mut workers[..2] {
            let src = w.floats(&values(w.rank, 40));
            let push = w.push(round, src);
            w.expect(
                Descriptor {
                    flags: Flags::WAIVE,
                    ..push
                },
                Status::Ok,
            );
        }
        let w = &mut workers[2];
        let src = w.floats(&values(2, 40));
        let dst = w.buffer(160);
        let d = w.push_pull(round, src, dst);
        w.expect(d, Status::Ok);
        assert_eq!(w.read_floats(dst), sum(3, 40));
    }
    rack.card.settle();
    assert!(!rack.slot(tenant.slot_base).state.open());
}

fn broadcast_by_pull(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(4, 3);
    let mut workers = rack.workers(tenant);
    let root = 2;
    let dst: Vec<_> = workers.iter_mut().map(|w| w.buffer(1400)).collect();
    for w in &mut workers {
        let d = if w.rank == root {
            let src = w.floats(&values(root, 350));
            w.push_pull(0, src, dst[2])
        } else {
            w.pull(0, dst[usize::from(w.rank)])
        };
        w.submit(d);
    }
    for (w, dst) in workers.iter_mut().zip(dst) {
        let c = w.wait_for(Status::Ok);
        assert_eq!((c.contributors, c.count), (1 << root, 1));
        assert_eq!(w.read_floats(dst), values(root, 350));
    }
}

fn nobody_contributes(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(2, 3);
    let mut workers = rack.workers(tenant);
    let dst: Vec<_> = workers.iter_mut().map(|w| w.words(&[7; 300])).collect();
    for (w, dst) in workers.iter_mut().zip(&dst) {
        let d = w.pull(5, *dst);
        w.submit(Descriptor {
            flags: Flags::MEAN,
            ..d
        });
    }
    for (w, dst) in workers.iter_mut().zip(dst) {
        let c = w.wait_for(Status::Ok);
        assert_eq!((c.contributors, c.count), (0, 0));
        assert_eq!(w.read(dst), [0; 300]);
    }
}

fn in_place(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(3, 2);
    let mut workers = rack.workers(tenant);
    let words = 3000;
    let buffers: Vec<_> = workers
        .iter_mut()
        .map(|w| w.floats(&values(w.rank, words)))
        .collect();
    for (w, b) in workers.iter_mut().zip(&buffers) {
        let d = w.push_pull(0, *b, *b);
        w.submit(d);
    }
    for (w, b) in workers.iter_mut().zip(buffers) {
        w.wait_for(Status::Ok);
        assert_eq!(w.read_floats(b), sum(3, words));
    }
}

fn result_has_its_crc(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(1, 2);
    let mut w = rack.worker(tenant, 0, Shape::default());
    for (seq, words) in [(0, 1), (1, 256), (2, 700), (5, 3)] {
        let src = w.floats(&values(3, words));
        let dst = w.buffer(src.len);
        let d = w.push_pull(seq, src, dst);
        let c = w.expect(d, Status::Ok);
        assert_eq!(
            c.crc,
            crc32fast::hash(&w.bytes(dst.offset, dst.len as usize)),
            "{words} elements"
        );
    }
}

fn payload_crc_is_checked(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(2, 3);
    let mut workers = rack.workers(tenant);
    for (seq, words) in [(0, 1), (1, 16), (2, 256), (3, 1000)] {
        let mut dst = Vec::new();
        for w in &mut workers {
            let src = w.floats(&values(w.rank, words));
            let to = w.buffer(src.len);
            let crc = crc32fast::hash(&w.bytes(src.offset, src.len as usize));
            let d = Descriptor {
                flags: Flags::CRC,
                crc,
                ..w.push_pull(seq, src, to)
            };
            if w.rank == 1 {
                // A corrupted payload: its last segment does not enter the slot.
                let last = d.seq + (src.len - 1) / 1024;
                let push = Descriptor {
                    flags: Flags::CRC,
                    crc: crc ^ 0x8000,
                    ..w.push(seq, src)
                };
                let c = w.expect(push, Status::CrcError);
                assert_eq!((c.seq, c.bytes), (last, 0));
                let tail = Buffer {
                    iova: src.iova + u64::from(1024 * (last - seq)),
                    len: src.len - 1024 * (last - seq),
                    ..src
                };
                let again = Descriptor {
                    key: push.key,
                    ..w.push(last, tail)
                };
                w.expect(again, Status::Ok);
                let pull = w.pull(seq, to);
                w.submit(pull);
            } else {
                w.submit(d);
            }
            dst.push(to);
        }
        for (w, dst) in workers.iter_mut().zip(dst) {
            let c = w.wait_for(Status::Ok);
            assert_eq!(c.flags.contains(CompletionFlags::CRC_CHECKED), w.rank == 0);
            assert_eq!(w.read_floats(dst), sum(2, words));
        }
    }
    assert_eq!(
        rack.counter::<phub_abi::regs::CountersCrcErrorsLo>(tenant),
        4
    );
}

fn special_values(card: Card) {
    const INF: u32 = 0x7f80_0000;
    const MINUS: u32 = 0x8000_0000;
    let cases: [(u32, u32, u32); 12] = [
        (0x7fa0_0001, 0x3f80_0000, CANONICAL_NAN),
        (INF, 0xff80_0000, CANONICAL_NAN),
        (INF, 0x3f80_0000, INF),
        (0x7f7f_ffff, 0x7f7f_ffff, INF),
        (1, 1, 2),
        (0x007f_ffff, 1, 0x0080_0000),
        (0x0080_0000, MINUS | 1, 0x007f_ffff),
        (MINUS, MINUS, MINUS),
        (MINUS, 0, 0),
        (0x3f80_0000, 0xbf80_0000, 0),
        (0x3f80_0000, 0x3380_0000, 0x3f80_0000),
        (0x3f80_0001, 0x3380_0000, 0x3f80_0002),
    ];
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(2, 3);
    let mut workers = rack.workers(tenant);
    let sides = [cases.map(|c| c.0), cases.map(|c| c.1)];
    let mut dst = Vec::new();
    for (w, side) in workers.iter_mut().zip(sides) {
        let src = w.words(&side);
        let to = w.buffer(src.len);
        let d = w.push_pull(0, src, to);
        w.submit(d);
        dst.push(to);
    }
    for (w, dst) in workers.iter_mut().zip(dst) {
        let c = w.wait_for(Status::Ok);
        assert!(c.flags.contains(CompletionFlags::NON_FINITE));
        assert_eq!(w.read(dst), cases.map(|c| c.2));
    }
    // A lone contribution keeps its bits, sign of zero included, but for a NaN.
    let odd = [0x7fa0_0001, 0xffc1_2345, MINUS, 1, INF];
    let want = [CANONICAL_NAN, CANONICAL_NAN, MINUS, 1, INF];
    for flags in [Flags::NONE, Flags::MEAN] {
        let seq = if flags == Flags::MEAN { 2 } else { 1 };
        let src = workers[0].words(&odd);
        let dst = [workers[0].buffer(20), workers[1].buffer(20)];
        let d = Descriptor {
            flags,
            ..workers[0].push_pull(seq, src, dst[0])
        };
        workers[0].submit(d);
        let d = Descriptor {
            flags,
            ..workers[1].pull(seq, dst[1])
        };
        workers[1].submit(d);
        for (w, dst) in workers.iter_mut().zip(dst) {
            w.wait_for(Status::Ok);
            assert_eq!(w.read(dst), want);
        }
    }
}

fn small_between_large(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(3, 5);
    let mut workers = rack.workers_with(
        tenant,
        Shape {
            buffers: 4 << 20,
            ..Shape::default()
        },
    );
    let sizes: Vec<usize> = [40_000]
        .into_iter()
        .chain((0..40).map(|i| 1 + i % 5))
        .chain([40_000])
        .collect();
    let mut dst = vec![Vec::new(); 3];
    for (w, dst) in workers.iter_mut().zip(&mut dst) {
        let mut seq = 0;
        for words in &sizes {
            let src = w.floats(&values(w.rank, *words));
            let to = w.buffer(src.len);
            let d = w.push_pull(seq, src, to);
            w.submit(d);
            dst.push(to);
            seq += words.div_ceil(256) as u32;
        }
    }
    for (w, dst) in workers.iter_mut().zip(dst) {
        for (words, to) in sizes.iter().zip(dst) {
            w.wait_for(Status::Ok);
            assert!(w.read_floats(to) == sum(3, *words), "{words} elements");
        }
    }
}

/// Tails of one beat from several workers follow each other into one slot faster than an adder can answer.
fn short_tails_to_one_slot(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(8, 0);
    let mut workers = rack.workers(tenant);
    let mut buffers = vec![Vec::new(); 8];
    for (w, buffers) in workers.iter_mut().zip(&mut buffers) {
        for seq in 0..30 {
            let buffer = w.floats(&[f32::from(w.rank) + seq as f32; 3]);
            let d = w.push_pull(seq, buffer, buffer);
            w.post(&d);
            buffers.push(buffer);
        }
    }
    workers.iter().for_each(Worker::ring);
    for (w, buffers) in workers.iter_mut().zip(buffers) {
        for (seq, buffer) in (0..).zip(buffers) {
            let c = w.wait_for(Status::Ok);
            assert_eq!((c.seq, c.count), (seq, 8));
            assert_eq!(w.read_floats(buffer), [28.0 + 8.0 * seq as f32; 3]);
        }
    }
}

fn chunk_longer_than_the_slots(card: Card) {
    let segment = card.params.seg_bytes as usize / 4;
    let mut rack = Rack::new(card);
    for slot_log2 in [0, 1, 2] {
        let tenant = rack.tenant(2, slot_log2);
        let mut workers = rack.workers(tenant);
        let words = 19 * segment + 1;
        let results = exchange(&mut workers, 100, words, Flags::NONE);
        for (w, dst) in workers.iter().zip(results) {
            assert!(w.read_floats(dst) == sum(2, words), "2^{slot_log2} slots");
        }
    }
}

fn sequence_numbers_wrap(card: Card) {
    let mut rack = Rack::new(card);
    let tenant = rack.tenant(2, 2);
    let mut workers = rack.workers(tenant);
    let mut seq = u32::MAX - 9;
    for words in [256, 1000, 256 * 6, 77, 5000] {
        let results = exchange(&mut workers, seq, words, Flags::NONE);
        for (w, dst) in workers.iter().zip(results) {
            assert_eq!(w.read_floats(dst), sum(2, words));
        }
        seq = seq.wrapping_add(words.div_ceil(256) as u32);
    }
    assert!(seq < 100, "the test crosses the end");
}

fn two_tenants_at_once(card: Card) {
    let mut rack = Rack::new(card);
    let tenants = [rack.tenant(2, 3), rack.tenant(3, 3)];
    let mut workers: Vec<_> = tenants.iter().flat_map(|t| rack.workers(*t)).collect();
    let words = 9000;
    let mut dst = Vec::new();
    for w in &mut workers {
        // Same sequence numbers, same keys: nothing of it may meet.
        let src = w.floats(&values(w.rank + 10 * w.tenant.index as u8, words));
        let d = w.push_pull(0, src, src);
        w.submit(d);
        dst.push(src);
    }
    for (w, dst) in workers.iter_mut().zip(dst) {
        w.wait_for(Status::Ok);
        let n = w.tenant.workers;
        let extra = f32::from(n) * 70.0 * w.tenant.index as f32;
        let want: Vec<f32> = sum(n, words).iter().map(|s| s + extra).collect();
        assert!(w.read_floats(dst) == want, "tenant {}", w.tenant.index);
    }
}

fn counters_count(card: Card) {
    use phub_abi::regs::*;
    let mut rack = Rack::new(card);
    let (tenant, other) = (rack.tenant(2, 3), rack.tenant(1, 3));
    let mut workers = rack.workers(tenant);
    exchange(&mut workers, 0, 600, Flags::NONE);
    let dst = [workers[0].buffer(40), workers[1].buffer(40)];
    let src = workers[0].words(&[0x7f80_0000; 10]);
    let d = workers[0].push_pull(3, src, dst[0]);
    workers[0].submit(d);
    let d = workers[1].pull(3, dst[1]);
    workers[1].submit(d);
    for w in &mut workers {
        w.wait_for(phub_abi::Status::Ok);
    }
    rack.card.settle();
    assert_eq!(rack.counter::<CountersSegmentsInLo>(tenant), 2 * 3 + 1);
    assert_eq!(rack.counter::<CountersBytesInLo>(tenant), 2 * 2400 + 40);
    assert_eq!(rack.counter::<CountersSegmentsOutLo>(tenant), 2 * 3 + 2);
    assert_eq!(rack.counter::<CountersBytesOutLo>(tenant), 2 * 2400 + 80);
    assert_eq!(rack.counter::<CountersSlotsCompleteLo>(tenant), 4);
    assert_eq!(rack.counter::<CountersAbstainsLo>(tenant), 1);
    assert_eq!(rack.counter::<CountersNonFiniteLo>(tenant), 2);
    assert_eq!(rack.counter::<CountersCompletionsLo>(tenant), 4);
    for counter in 0..16 {
        assert_eq!(
            rack.card
                .counter(other.index, CountersSegmentsInLo::OFFSET + 8 * counter),
            0
        );
    }
}
