// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Workers, hubs and cards that die, stop, or lie: everybody else gets an error that says so, within seconds.

mod absences;
mod control;
mod deaths;
#[path = "../hub/mod.rs"]
mod hub;
mod rings;

use std::panic::AssertUnwindSafe;

use hub::Rig;
use phub::{Reduce, Worker};

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
