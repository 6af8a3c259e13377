// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The hub's state: tenants, workers, and how epochs end. One thread owns it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use phub::control::{Fate, HubCounters};

use crate::card::{CardError, CardPort};
use crate::config::Config;
use crate::connection::{Connection, ConnectionId, Member, State};
use crate::doorbell::{Doorbells, Report};
use crate::tenant::{Refused, Tenant};
use phub::Refusal;

pub(crate) struct Hub {
    pub(crate) config: Config,
    pub(crate) card: CardPort,
    pub(crate) doorbells: Doorbells,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    pub(crate) tenants: BTreeMap<String, Tenant>,
    pub(crate) counters: HubCounters,
    pub(crate) started: Instant,
    /// Why the card cannot be used, until it is back.
    pub(crate) failed: Option<String>,
}

impl Hub {
    /// The worker a connection stands for.
    pub(crate) fn member(&self, id: ConnectionId) -> Option<&Member> {
        match &self.connections.get(&id)?.state {
            State::Member(member) => Some(member),
            _ => None,
        }
    }

    /// Whether any worker is there.
    pub(crate) fn has_members(&self) -> bool {
        self.connections
            .values()
            .any(|connection| matches!(connection.state, State::Member(_)))
    }

    /// Whether a worker has not yet closed after the end of its epoch.
    pub(crate) fn has_mourners(&self) -> bool {
        self.connections
            .values()
            .any(|connection| matches!(connection.state, State::Ended(_)))
    }

    /// Connections that closed, or whose process ended: their workers are lost.
    pub(crate) fn closed(&mut self, ids: &[ConnectionId]) {
        let mut lost: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for member in ids.iter().filter_map(|id| self.member(*id)) {
            lost.entry(member.tenant.clone())
                .or_default()
                .insert(member.rank);
        }
        for (tenant, ranks) in lost {
            tracing::warn!(tenant, ?ranks, "workers lost");
            self.counters.deaths += ranks.len() as u64;
            let ranks = ranks.into_iter().collect();
            let what = "its process ended, or closed its connection".to_owned();
            self.end_epoch(&tenant, Fate::Lost { ranks, what });
        }
        for id in ids {
            self.connections.remove(id);
        }
    }

    /// A worker says it is done.
    pub(crate) fn leave(&mut self, id: ConnectionId) -> Result<(), Refused> {
        let Some((name, rank)) = self
            .member(id)
            .map(|member| (member.tenant.clone(), member.rank))
        else {
            return Err((
                Refusal::BadRequest,
                "no worker has joined over this connection".into(),
            ));
        };
        let Some(member) = self.detach(id, State::Open) else {
            return Err((
                Refusal::BadRequest,
                "no worker has joined over this connection".into(),
            ));
        };
        let released = self.card.release(member.queue);
        tracing::info!(tenant = name, rank, "left");
        let Some(tenant) = self.tenants.get_mut(&name) else {
            return Ok(());
        };
        tenant.members.remove(&rank);
        tenant.departed |= 1 << rank;
        if tenant.members.is_empty() {
            if tenant.temporary {
                self.remove_tenant(&name);
            } else {
                // The next job finds clean slots and counts from the start.
                self.end_epoch(&name, Fate::Deleted);
            }
        } else {
            let departed = tenant.departed;
            let others: Vec<_> = tenant.members.values().copied().collect();
            for other in others.iter().filter_map(|other| self.member(*other)) {
                other.page.set_departed(departed);
                signal(other);
            }
        }
        released.map_err(|error| self.refuse(error))
    }

    /// Ends the epoch of a tenant: the card aborts it and lets go of every worker's memory, and each
    /// worker is told its fate.
    pub(crate) fn end_epoch(&mut self, name: &str, fate: Fate) {
        let Some(tenant) = self.tenants.get(name) else {
            return;
        };
        let id = tenant.id;
        let members: Vec<_> = tenant.members.values().copied().collect();
        tracing::info!(tenant = name, ?fate, "epoch ended");
        self.counters.aborts += 1;
        // No doorbell any more; then the card gives back what it holds; then it forgets the queues.
        for member in members.iter().filter_map(|id| self.member(*id)) {
            self.doorbells.forget(member.queue.index());
        }
        let epoch = self.card.abort(id);
        for member in members {
            self.dismiss(member, fate.clone());
        }
        match epoch {
            Ok(epoch) => {
                if let Some(tenant) = self.tenants.get_mut(name) {
                    tenant.renew(epoch);
                    if tenant.temporary {
                        self.remove_tenant(name);
                    }
                }
            }
            Err(error) => self.card_error(&error),
        }
    }

    /// Deletes a tenant without workers.
    pub(crate) fn remove_tenant(&mut self, name: &str) {
        if let Some(tenant) = self.tenants.remove(name) {
            tracing::info!(tenant = name, "tenant deleted");
            if let Err(error) = self.card.delete_tenant(tenant.id) {
                self.card_error(&error);
            }
        }
    }

    /// Takes what the doorbell thread and the card report. A card that does not answer is gone.
    pub(crate) fn look_after_card(&mut self) {
        if self.failed.is_some() {
            return;
        }
        for report in self.doorbells.reports() {
            match report {
                Report::Nonsense { queue, what } => self.expel(queue, &what),
                Report::Card { what } => self.card_gone(&what),
            }
        }
        match self.card.queue_errors() {
            Ok(errors) => errors
                .iter()
                .for_each(|(queue, what)| self.expel(*queue, what)),
            Err(error) => self.card_error(&error),
        }
    }

    /// Ends the epoch of the worker that has this queue, because of what it did.
    fn expel(&mut self, queue: u32, what: &str) {
        let member = self
            .connections
            .keys()
            .find_map(|id| self.member(*id).filter(|m| m.queue.index() == queue));
        let Some((tenant, rank)) = member.map(|member| (member.tenant.clone(), member.rank)) else {
            return;
        };
        tracing::warn!(tenant, rank, what, "worker expelled");
        self.counters.expulsions += 1;
        let what = what.to_owned();
        self.end_epoch(&tenant, Fate::Expelled { rank, what });
    }

    /// Tells everybody that the card is gone.
    pub(crate) fn card_gone(&mut self, what: &str) {
        if self.failed.is_some() {
            return;
        }
        tracing::error!(what, "the card is gone");
        self.failed = Some(what.to_owned());
        self.dismiss_all(&Fate::CardGone {
            what: what.to_owned(),
        });
        self.tenants.retain(|_, tenant| !tenant.temporary);
        self.card.abandon();
    }

    /// Goes on with a card that has come back: it knows nothing, so it is told of the tenants that were created to stay.
    pub(crate) fn card_is_back(&mut self, card: CardPort) {
        tracing::info!(card = card.address(), "the card is back");
        self.card = card;
        self.failed = None;
        let mut broken = None;
        self.tenants.retain(|name, tenant| {
            let slots_log2 = tenant.slots.ilog2() as u8;
            match self
                .card
                .create_tenant(tenant.world, slots_log2, 0, tenant.token())
            {
                Ok(created) => {
                    tenant.replace(&created);
                    true
                }
                Err(error) => {
                    tracing::error!(?error, tenant = name, "the tenant is lost");
                    broken = broken.take().or(Some(error));
                    false
                }
            }
        });
        if let Some(error) = broken {
            self.card_error(&error);
        }
    }

    /// Ends every worker's epoch, with the card or without.
    pub(crate) fn dismiss_all(&mut self, fate: &Fate) {
        let members: Vec<_> = self
            .connections
            .keys()
            .copied()
            .filter(|id| self.member(*id).is_some())
            .collect();
        for id in members {
            self.dismiss(id, fate.clone());
        }
        self.tenants
            .values_mut()
            .for_each(|tenant| drop(tenant.renew(tenant.epoch)));
    }

    /// What to tell a client about a card's error; if the card is broken, everybody hears of it.
    pub(crate) fn refuse(&mut self, error: CardError) -> Refused {
        self.card_error(&error);
        match error {
            CardError::Full(what) => (Refusal::LimitReached, what),
            CardError::Failed(what) => (Refusal::CardFailed, what),
        }
    }

    fn card_error(&mut self, error: &CardError) {
        if let CardError::Failed(what) = error {
            self.card_gone(what);
        }
    }

    /// Takes a worker's queue from the card and tells it that its epoch is over.
    fn dismiss(&mut self, id: ConnectionId, fate: Fate) {
        let Some(member) = self.detach(id, State::Ended(fate)) else {
            return;
        };
        if let Err(error) = self.card.release(member.queue) {
            // The card is broken; whoever called finds out by its own next call.
            tracing::warn!(
                ?error,
                tenant = member.tenant,
                rank = member.rank,
                "queue not released"
            );
        }
        member.page.set_ended();
        if let Err(error) = member.event.signal() {
            tracing::warn!(%error, tenant = member.tenant, rank = member.rank, "worker not woken");
        }
    }

    /// Takes the worker out of its connection, and its queue from the doorbell thread.
    fn detach(&mut self, id: ConnectionId, next: State) -> Option<Member> {
        let connection = self.connections.get_mut(&id)?;
        match std::mem::replace(&mut connection.state, next) {
            State::Member(member) => {
                self.doorbells.forget(member.queue.index());
                Some(*member)
            }
            other => {
                connection.state = other;
                None
            }
        }
    }
}

fn signal(member: &Member) {
    if let Err(error) = member.event.signal() {
        tracing::warn!(%error, tenant = member.tenant, rank = member.rank, "worker not woken");
    }
}
