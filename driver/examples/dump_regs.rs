// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Prints what a card is and does, without touching it: `cargo run --example dump_regs -- 0000:3b:00.0`.

use phub_abi::regs::*;
use phub_driver::{CardAddress, PciInfo, connect};
use phub_pci::RegisterIoExt;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address: CardAddress = std::env::args()
        .nth(1)
        .ok_or("usage: dump_regs ADDRESS")?
        .parse()?;
    let card = connect(&address)?;
    println!("{:#?}", PciInfo::read(&*card)?);
    println!("{:#x?}", card.get::<Magic>()?);
    println!("{:?}", card.get::<AbiVersion>()?);
    println!("{:#x?}", card.get::<BuildHash>()?);
    println!("{:?}", card.get::<Caps>()?);
    println!("{:?}", card.get::<ParamDatapath>()?);
    println!("{:?}", card.get::<ParamSlots>()?);
    println!("{:?}", card.get::<ParamTenants>()?);
    let queues = card.get::<ParamQueues>()?;
    println!("{queues:?}");
    println!("{:?}", card.get::<Ctrl>()?);
    println!("{:?}", card.get::<Status>()?);
    println!("{:?}", card.get::<Fatal>()?);
    println!("{:?}", card.get::<CmdStatus>()?);
    for queue in 0..queues.queues().min(QueueTableCtrl::COUNT) {
        let ctrl = card.get_at::<QueueTableCtrl>(queue)?;
        if ctrl.enable() {
            let status = card.get_at::<QueueTableStatus>(queue)?;
            println!(
                "queue {queue}: {ctrl:?} {status:?} {:?}",
                card.get_at::<QueueTablePointers>(queue)?
            );
        }
    }
    Ok(())
}
