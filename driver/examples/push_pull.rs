// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Sends 256 numbers through a card and back: `cargo run --example push_pull -- vfio-user:/run/phub/card.sock`.

use phub_abi::{Descriptor, Flags, Opcode};
use phub_driver::ring::{CompletionQueue, SubmissionQueue};
use phub_driver::{Device, QueueConfig, TenantConfig};
use phub_sys::{EventFd, HugePages, Memory};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: push_pull ADDRESS")?;
    let device = Device::open(&address.parse()?)?;
    let config = TenantConfig {
        workers: 1,
        slots_log2: 4,
        token: 0,
    };
    let tenant = device.create_tenant(config)?;

    let memory = Memory::new(0x3000, HugePages::No)?;
    let mut submissions = SubmissionQueue::new(&memory, 0x0000, 4)?;
    let mut completions = CompletionQueue::new(&memory, 0x1000, 4)?;
    memory.write_f32(0x2000, &[2.5; 256])?;

    let done = EventFd::new()?;
    let (sq_offset, sq_log2, cq_offset, cq_log2) = (0x0000, 4, 0x1000, 4);
    let (tenant, epoch, event) = (tenant.id, tenant.epoch, Some(done.try_clone()?));
    let arena = memory.clone();
    let queue = device.create_queue(QueueConfig {
        tenant,
        worker: 0,
        memory: arena,
        sq_offset,
        sq_log2,
        cq_offset,
        cq_log2,
        event,
    })?;

    let mut push_pull = Descriptor::from_bytes(&[0; 64]);
    push_pull.opcode = Opcode::PushPull as u8;
    push_pull.flags = Flags::IRQ;
    push_pull.epoch = epoch;
    push_pull.src = queue.iova() + 0x2000;
    push_pull.dst = push_pull.src;
    push_pull.length = 1024;
    queue.ring_sq(submissions.push(&push_pull)?)?;

    done.wait(std::time::Duration::from_secs(10))?;
    let completion = completions.pop().ok_or("no completion in 10 s")?;
    let mut sum = [0.0; 256];
    memory.read_f32(0x2000, &mut sum)?;
    println!("{completion:?}\n2.5 became {}", sum[255]);
    Ok(())
}
