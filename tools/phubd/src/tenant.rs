// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A tenant as the hub keeps it: who takes part, and in which epoch.

use std::collections::BTreeMap;
use std::hint::black_box;

use phub::Refusal;
use phub_driver::TenantId;

use crate::config::NAME_MAX;
use crate::connection::ConnectionId;

/// A refused request: which rule, and what exactly.
pub(crate) type Refused = (Refusal, String);

/// A job.
pub(crate) struct Tenant {
    /// Its entry in the card's tenant table.
    pub(crate) id: TenantId,
    token: u64,
    pub(crate) world: u32,
    pub(crate) epoch: u32,
    pub(crate) slots: u32,
    /// It goes with its last worker.
    pub(crate) temporary: bool,
    /// Workers of this epoch, by rank.
    pub(crate) members: BTreeMap<u32, ConnectionId>,
    /// Ranks that have left this epoch.
    pub(crate) departed: u64,
}

impl Tenant {
    pub(crate) fn new(card: &phub_driver::Tenant, token: u64, temporary: bool) -> Self {
        Self {
            id: card.id,
            token,
            world: card.workers,
            epoch: card.epoch,
            slots: 1 << card.slots_log2,
            temporary,
            members: BTreeMap::new(),
            departed: 0,
        }
    }

    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// The tenant as another card keeps it, with nobody in it.
    pub(crate) fn replace(&mut self, card: &phub_driver::Tenant) {
        *self = Self::new(card, self.token, self.temporary);
    }

    /// Whether a worker with this token, world size and rank may join now.
    pub(crate) fn admit(&self, token: u64, world: u32, rank: u32) -> Result<(), Refused> {
        // The token first: who does not know it learns nothing else. The comparison takes the same time for every token.
        if black_box(self.token ^ token) != 0 {
            return Err((Refusal::WrongToken, "the tenant has another token".into()));
        }
        if self.world != world {
            return Err((
                Refusal::WorldMismatch,
                format!("the tenant has {} workers, not {world}", self.world),
            ));
        }
        check_rank(world, rank)?;
        if self.members.contains_key(&rank) {
            return Err((
                Refusal::RankTaken,
                format!("worker {rank} is there already"),
            ));
        }
        if self.departed != 0 {
            let (left, there) = (
                phub::control::ranks_of(self.departed),
                self.members.keys().collect::<Vec<_>>(),
            );
            let reason =
                format!("workers {left:?} have left this epoch, workers {there:?} have not");
            return Err((Refusal::EpochClosing, reason));
        }
        Ok(())
    }

    /// A new epoch, with nobody in it. Who was in the old one.
    pub(crate) fn renew(&mut self, epoch: u32) -> BTreeMap<u32, ConnectionId> {
        self.epoch = epoch;
        self.departed = 0;
        std::mem::take(&mut self.members)
    }
}

/// Whether a tenant may have this name.
pub(crate) fn check_name(name: &str) -> Result<(), Refused> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._:-".contains(&b);
    if (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(good) {
        return Ok(());
    }
    let reason = format!("a tenant's name has 1 to {NAME_MAX} of A-Z a-z 0-9 . _ : -");
    Err((Refusal::BadRequest, reason))
}

/// Whether a rank is one of that world.
pub(crate) fn check_rank(world: u32, rank: u32) -> Result<(), Refused> {
    if rank < world {
        return Ok(());
    }
    Err((
        Refusal::RankOutOfRange,
        format!("rank {rank} of {world} workers"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant() -> Tenant {
        let model = phub_model::GoldenCard::new(phub_model::Params::default());
        let device = phub_driver::Device::new(std::sync::Arc::new(model)).unwrap();
        let config = phub_driver::TenantConfig {
            workers: 3,
            slots_log2: 8,
            token: 42,
        };
        Tenant::new(&device.create_tenant(config).unwrap(), 42, false)
    }

    #[test]
    fn every_rule_has_its_refusal() {
        let mut tenant = tenant();
        let code = |tenant: &Tenant, token, world, rank| {
            tenant
                .admit(token, world, rank)
                .map_err(|refused| refused.0)
        };
        assert_eq!(code(&tenant, 41, 9, 9), Err(Refusal::WrongToken));
        assert_eq!(code(&tenant, 42, 4, 0), Err(Refusal::WorldMismatch));
        assert_eq!(code(&tenant, 42, 3, 3), Err(Refusal::RankOutOfRange));
        assert_eq!(code(&tenant, 42, 3, 2), Ok(()));
        tenant.members.insert(2, 1);
        assert_eq!(code(&tenant, 42, 3, 2), Err(Refusal::RankTaken));
        tenant.departed = 1;
        assert_eq!(code(&tenant, 42, 3, 1), Err(Refusal::EpochClosing));
        assert_eq!(tenant.renew(8).len(), 1);
        assert_eq!(code(&tenant, 42, 3, 0), Ok(()));
    }

    #[test]
    fn names() {
        assert!(check_name("job-1.a:b_C").is_ok());
        for bad in ["", "a b", "ä", "a\n", &"x".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }
}
