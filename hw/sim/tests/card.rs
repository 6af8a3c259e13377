// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The Verilated card: registers, DMA, interrupts, clock, waves, failures.

mod rig;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use phub_abi::{MAGIC, Status as Outcome, regs::*};
use phub_pci::{PciError, PciFunction, RegisterIoExt, config};
use phub_sim::{AxiConfig, Build, CardConfig, RunningCard, SimError, VerilatedCard, Waves};
use rig::{Rig, count};

fn card(build: Build, axi: AxiConfig, seed: u64) -> VerilatedCard {
    let config = CardConfig {
        build,
        axi,
        seed,
        contributions: true,
        ..CardConfig::default()
    };
    VerilatedCard::new(config).unwrap()
}

/// Sums of three workers, odd lengths, several rounds.
fn sums(card: &dyn PciFunction, slots_log2: u32, seg_bytes: u32) {
    let mut rig = Rig::new(card, 3, slots_log2, 16384);
    let mut seq = 0;
    for (round, bytes) in [4, 64, 1024, 1028, 4092, 16384].into_iter().enumerate() {
        for worker in 0..3 {
            rig.fill(worker, bytes, |i| {
                (i as f32) + (worker * 1000) as f32 + round as f32
            });
        }
        for completion in rig.round(seq, bytes) {
            assert_eq!(completion.status, Outcome::Ok.code());
            assert_eq!((completion.bytes, completion.count), (bytes, 3));
        }
        for worker in 0..3 {
            let expected: Vec<f32> = (0..bytes / 4)
                .map(|i| 3.0 * (i as f32) + 3000.0 + 3.0 * round as f32)
                .collect();
            assert_eq!(rig.result(worker, bytes), expected);
        }
        seq += bytes.div_ceil(seg_bytes);
    }
    for worker in 1..=3 {
        assert_eq!(
            count(&rig.eventfds[worker]),
            6,
            "one interrupt a completion"
        );
    }
    assert_eq!(count(&rig.eventfds[0]), 0, "no errors");
}

#[test]
fn identity_and_parameters_are_those_of_the_build() {
    for build in [Build::Standard, Build::Tiny] {
        let card = card(build, AxiConfig::default(), 1);
        let p = card.parameters();
        let card: &dyn PciFunction = &card;
        assert_eq!(card.get::<Magic>().unwrap().value(), MAGIC);
        assert_ne!(card.get::<BuildHash>().unwrap().value(), 0);
        let datapath = card.get::<ParamDatapath>().unwrap();
        assert_eq!(
            (datapath.lanes(), 1 << datapath.seg_log2()),
            (p.lanes, p.seg_bytes)
        );
        assert_eq!(datapath.vectors() as usize, card.vectors());
        assert_eq!(card.get::<ParamSlots>().unwrap().value(), p.slots);
        let tenants = card.get::<ParamTenants>().unwrap();
        assert_eq!(
            (tenants.tenants(), tenants.workers()),
            (p.tenants, p.workers)
        );
        let queues = card.get::<ParamQueues>().unwrap();
        assert_eq!(
            (queues.queues(), queues.desc_depth()),
            (p.queues, p.desc_depth)
        );
    }
}

#[test]
fn gradients_are_summed_whatever_host_memory_does() {
    for (seed, axi) in [
        (1, AxiConfig::default()),
        (2, AxiConfig::hostile()),
        (3, AxiConfig::hostile()),
    ] {
        let standard = card(Build::Standard, axi, seed);
        sums(&standard, 5, 1024);
        assert_eq!(standard.failure(), None);
        let tiny = card(Build::Tiny, axi, seed);
        sums(&tiny, 1, 64);
        assert_eq!(tiny.failure(), None);
    }
}

#[test]
fn the_trace_names_every_contribution_in_order() {
    let card = card(Build::Standard, AxiConfig::hostile(), 4);
    let mut rig = Rig::new(&card, 2, 2, 4096);
    rig.round(10, 2048);
    let trace = card.take_trace();
    let parts: Vec<_> = trace.iter().map(|t| (t.what.worker, t.what.seq)).collect();
    assert_eq!(parts.len(), 4);
    for part in [(0, 10), (0, 11), (1, 10), (1, 11)] {
        assert!(parts.contains(&part), "{part:?} in {parts:?}");
    }
    for seq in [10, 11] {
        let of_seq: Vec<_> = trace.iter().filter(|t| t.what.seq == seq).collect();
        assert!(of_seq[0].first && !of_seq[1].first);
        assert!(
            of_seq
                .iter()
                .all(|t| t.slot == (seq % 4) as u16 && !t.what.abstain)
        );
    }
    assert!(trace.is_sorted_by_key(|t| t.cycle));
    assert!(card.take_trace().is_empty());
}

#[test]
fn the_same_seed_gives_the_same_cycles() {
    let run = |seed| {
        let card = card(Build::Standard, AxiConfig::hostile(), seed);
        sums(&card, 5, 1024);
        (card.cycle(), card.take_trace())
    };
    let first = run(11);
    assert_eq!(first, run(11));
    assert_ne!(first.0, run(12).0);
}

#[test]
fn an_idle_card_has_no_clock() {
    let card = card(Build::Standard, AxiConfig::default(), 1);
    let mut rig = Rig::new(&card, 1, 2, 4096);
    rig.round(0, 4096);
    for _ in 0..1000 {
        card.relax();
    }
    assert!(card.idle());
    let cycle = card.cycle();
    for _ in 0..1000 {
        card.relax();
    }
    assert_eq!(card.cycle(), cycle);
}

#[test]
fn without_bus_mastering_nothing_is_read_and_nobody_is_interrupted() {
    let card = card(Build::Standard, AxiConfig::default(), 1);
    let mut rig = Rig::new(&card, 1, 2, 4096);
    card.config_write(config::COMMAND, &[0, 0]).unwrap();
    rig.push_pull(0, 0, 64);
    rig.ring(0);
    for _ in 0..100 {
        card.relax();
    }
    assert!(rig.completion(0).is_none());
    let status = (&card as &dyn PciFunction)
        .get_at::<QueueTableStatus>(0)
        .unwrap();
    assert!(
        status.error(),
        "the queue stopped: its ring could not be read"
    );
    assert_eq!(count(&rig.eventfds[0]), 0);
}

#[test]
fn an_unmapped_ring_raises_the_error_vector() {
    let card = card(Build::Standard, AxiConfig::default(), 1);
    let mut rig = Rig::new(&card, 1, 2, 4096);
    card.dma_unmap(0x1000_0000, rig.memory.len()).unwrap();
    rig.push_pull(0, 0, 64);
    rig.ring(0);
    for _ in 0..100 {
        card.relax();
    }
    assert_eq!(count(&rig.eventfds[0]), 1);
    assert!(
        (&card as &dyn PciFunction)
            .get::<ErrorFifo>()
            .unwrap()
            .valid()
    );
}

#[test]
fn both_resets_give_the_power_on_state_and_keep_the_mappings() {
    let card = card(Build::Standard, AxiConfig::default(), 1);
    let by_flr = |card: &VerilatedCard| {
        let mut control = [0; 2];
        card.config_read(0x48, &mut control).unwrap();
        card.config_write(0x48, &(u16::from_le_bytes(control) | 1 << 15).to_le_bytes())
            .unwrap();
    };
    for reset in [
        &(|c: &VerilatedCard| c.reset().unwrap()) as &dyn Fn(&VerilatedCard),
        &by_flr,
    ] {
        let registers: &dyn PciFunction = &card;
        let rig = Rig::new(&card, 2, 2, 4096);
        registers.set(Scratch::default().with_value(77)).unwrap();
        reset(&card);
        assert_eq!(registers.get::<Scratch>().unwrap().value(), 0);
        assert!(!registers.get::<Ctrl>().unwrap().enable());
        assert!(!registers.get_at::<QueueTableCtrl>(0).unwrap().enable());
        let mut command = [0; 2];
        card.config_read(config::COMMAND, &mut command).unwrap();
        assert_eq!(command, [0, 0], "bus mastering is off");
        let again = card.dma_map(0x1000_0000, &rig.memory, 0, 4096);
        assert!(
            matches!(again, Err(PciError::Mapping { .. })),
            "the mapping stays"
        );
        card.dma_unmap(0x1000_0000, rig.memory.len()).unwrap();
    }
    sums(&card, 5, 1024);
}

#[test]
fn registers_outside_bar0_and_misaligned_ones_are_refused() {
    let card = card(Build::Tiny, AxiConfig::default(), 1);
    for offset in [1, 2, 0x20_0000, u32::MAX] {
        assert!(matches!(
            card.bar_read(offset),
            Err(PciError::OutOfRange { .. })
        ));
        assert!(matches!(
            card.bar_write(offset, 0),
            Err(PciError::OutOfRange { .. })
        ));
    }
    assert_eq!(card.bar_read(0x1f_fffc).unwrap(), 0, "a hole reads as zero");
}

#[cfg(feature = "trace")]
#[test]
fn waves_are_written_for_the_window_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = |from, to| {
        let path = dir.path().join("waves.fst");
        let waves = Some(Waves {
            path: path.clone(),
            from,
            to,
        });
        let config = CardConfig {
            build: Build::Traced,
            waves,
            ..CardConfig::default()
        };
        let card = VerilatedCard::new(config).unwrap();
        sums(&card, 5, 1024);
        drop(card);
        std::fs::metadata(&path).unwrap().len()
    };
    let (all, window, none) = (
        bytes(0, u64::MAX),
        bytes(100, 200),
        bytes(u64::MAX - 1, u64::MAX),
    );
    assert!(
        all > window && window > 1000 && none == 0,
        "{all} {window} {none}"
    );
}

#[test]
fn waves_nobody_can_write_are_an_error() {
    let waves = Some(Waves {
        path: "/nowhere/waves.fst".into(),
        from: 0,
        to: 1,
    });
    let traced = CardConfig {
        build: Build::Traced,
        waves: waves.clone(),
        ..CardConfig::default()
    };
    assert!(matches!(
        VerilatedCard::new(traced),
        Err(SimError::Trace { .. } | SimError::NotBuilt { .. })
    ));
    let standard = CardConfig {
        waves,
        ..CardConfig::default()
    };
    assert!(matches!(
        VerilatedCard::new(standard),
        Err(SimError::NotBuilt { .. })
    ));
}

fn running() -> RunningCard {
    RunningCard::start(CardConfig::default(), Box::new(|_| {})).unwrap()
}

#[test]
fn a_card_with_its_own_clock_does_the_same() {
    let card = running();
    sums(&card, 5, 1024);
    assert_eq!(card.failure(), None);
}

#[test]
fn an_idle_running_card_uses_no_processor_time() {
    let card = running();
    let mut rig = Rig::new(&card, 2, 2, 4096);
    rig.round(0, 4096);
    std::thread::sleep(Duration::from_millis(200));
    // All threads of this test process count; its other tests may be running, so look at this card's thread alone.
    let ticks = || -> u64 {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let of_clocks = tasks.filter(|task| {
            std::fs::read_to_string(task.path().join("comm"))
                .is_ok_and(|c| c.trim() == "card clock")
        });
        of_clocks
            .filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok())
            .filter_map(|stat| {
                let fields: Vec<u64> = stat
                    .rsplit(')')
                    .next()?
                    .split_whitespace()
                    .skip(11)
                    .take(2)
                    .filter_map(|f| f.parse().ok())
                    .collect();
                Some(fields.iter().sum::<u64>())
            })
            .min()
            .unwrap_or(0)
    };
    let before = ticks();
    std::thread::sleep(Duration::from_secs(1));
    assert!(
        ticks() - before <= 2,
        "{} ticks in a second of idleness",
        ticks() - before
    );
}

#[test]
fn unmapping_is_a_fence_also_for_a_running_card() {
    let card = running();
    let mut rig = Rig::new(&card, 1, 5, 1 << 20);
    rig.push_pull(0, 0, 1 << 20);
    rig.ring(0);
    card.dma_unmap(0x1000_0000, rig.memory.len()).unwrap();
    let zero = vec![0; 1 << 20];
    rig.memory.write_at(rig.dst(0), &zero).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(rig.result(0, 1 << 20).iter().all(|v| *v == 0.0));
}

#[test]
fn many_threads_share_a_running_card() {
    let card = Arc::new(running());
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let card = &*card as &dyn PciFunction;
            scope.spawn(move || {
                for i in 0..200 {
                    card.set_at(thread, TenantTableTokenLo::default().with_value(i))
                        .unwrap();
                    let back = card.get_at::<TenantTableTokenLo>(thread).unwrap();
                    assert_eq!(back.value(), i);
                }
            });
        }
    });
    assert!(start.elapsed() < Duration::from_secs(30));
}
