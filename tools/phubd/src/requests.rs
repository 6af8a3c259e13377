// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Answers to requests.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use phub::Refusal;
use phub::control::{
    AbortCause, ControlPage, CreateTenant, Fate, Info, Join, Joined, Layout, Member as MemberInfo,
    Reply, Request, Slots, Stats, TenantInfo, VERSION, ranks_of,
};
use phub_sys::{EventFd, HugePages, Memory};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::config::RING_LOG2;
use crate::connection::{ConnectionId, Member, State};
use crate::hub::Hub;
use crate::tenant::{Refused, Tenant, check_name, check_rank};

/// Most slots one answer lists; the longest entry has some 700 bytes.
const SLOTS_MAX: usize = 80;

/// A reply and the descriptors that go with it.
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) fds: Vec<OwnedFd>,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self {
            reply,
            fds: Vec::new(),
        }
    }
}

pub(crate) fn server() -> String {
    format!("phubd {}", env!("CARGO_PKG_VERSION"))
}

impl Hub {
    /// Answers one request of a connection.
    pub(crate) fn answer(&mut self, id: ConnectionId, request: Request) -> Answer {
        self.try_answer(id, request)
            .unwrap_or_else(|(code, reason)| {
                tracing::info!(?code, reason, "refused");
                self.counters.refusals += 1;
                Reply::Refused { code, reason }.into()
            })
    }

    fn try_answer(&mut self, id: ConnectionId, request: Request) -> Result<Answer, Refused> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Err((Refusal::BadRequest, "no such connection".into()));
        };
        if let State::Greeting = connection.state {
            let Request::Hello { version, client } = request else {
                return Err((Refusal::BadRequest, "the first request is `hello`".into()));
            };
            if version != VERSION {
                let reason = format!(
                    "the hub speaks version {VERSION} of the control protocol, `{client}` {version}"
                );
                return Err((Refusal::Version, reason));
            }
            connection.state = State::Open;
            return Ok(Reply::Hello {
                version: VERSION,
                server: server(),
            }
            .into());
        }
        let operator = connection.peer.is_operator();
        let only_operator = || match operator {
            true => Ok(()),
            false => Err((
                Refusal::NotPermitted,
                "only the hub's own user and root may do this".to_owned(),
            )),
        };
        Ok(match request {
            Request::Hello { .. } => {
                return Err((Refusal::BadRequest, "`hello` comes once".into()));
            }
            Request::Join(join) => return self.join(id, &join),
            Request::Leave => {
                self.leave(id)?;
                Reply::Left.into()
            }
            Request::Abort { cause } => self.abort(id, cause)?.into(),
            Request::Fate => self.fate(id)?.into(),
            Request::Info => Reply::Info(self.info()).into(),
            Request::Tenants => Reply::Tenants {
                tenants: self.tenants.keys().filter_map(|n| self.tenant(n)).collect(),
            }
            .into(),
            Request::CreateTenant(tenant) => {
                only_operator()?;
                self.create_tenant(&tenant)?.into()
            }
            Request::DeleteTenant { name } => {
                only_operator()?;
                if !self.tenants.contains_key(&name) {
                    return Err((Refusal::NoSuchTenant, format!("no tenant `{name}`")));
                }
                self.end_epoch(&name, Fate::Deleted);
                self.remove_tenant(&name);
                Reply::Deleted.into()
            }
            Request::Stats => Reply::Stats(self.stats()?).into(),
            Request::Slots { tenant } => Reply::Slots(self.slots(tenant.as_deref())?).into(),
        })
    }

    fn join(&mut self, id: ConnectionId, join: &Join) -> Result<Answer, Refused> {
        if let Some(what) = &self.failed {
            return Err((Refusal::CardFailed, what.clone()));
        }
        let Some(peer) = self
            .connections
            .get(&id)
            .filter(|c| !matches!(c.state, State::Member(_)))
            .map(|c| (c.peer.pid, c.peer.uid))
        else {
            return Err((Refusal::BadRequest, "this connection has a worker".into()));
        };
        check_name(&join.tenant)?;
        let layout = self.check_arena(join.arena_bytes)?;
        match self.tenants.get(&join.tenant) {
            Some(tenant) => tenant.admit(join.token, join.world, join.rank)?,
            None if self.config.auto_create => {
                check_rank(join.world, join.rank)?;
                self.add_tenant(&join.tenant, join.token, join.world, None, true)?;
            }
            None => {
                return Err((
                    Refusal::NoSuchTenant,
                    format!("no tenant `{}`", join.tenant),
                ));
            }
        }
        match self.add_member(id, join, layout) {
            Ok(answer) => {
                self.counters.joins += 1;
                let (pid, uid) = peer;
                tracing::info!(tenant = join.tenant, rank = join.rank, pid, uid, "joined");
                Ok(answer)
            }
            Err(refused) => {
                if self
                    .tenants
                    .get(&join.tenant)
                    .is_some_and(|tenant| tenant.temporary && tenant.members.is_empty())
                {
                    self.remove_tenant(&join.tenant);
                }
                Err(refused)
            }
        }
    }

    fn check_arena(&self, bytes: u64) -> Result<Layout, Refused> {
        let limit = |what: String| Err((Refusal::LimitReached, what));
        if bytes > self.config.arena_max {
            return limit(format!(
                "an arena of {bytes} bytes; the hub gives {} at most",
                self.config.arena_max
            ));
        }
        let Some(layout) = Layout::new(bytes, RING_LOG2) else {
            return limit(format!("an arena of {bytes} bytes"));
        };
        let used: u64 = self
            .connections
            .keys()
            .filter_map(|id| self.member(*id))
            .map(|member| member.arena_bytes)
            .sum();
        if layout.arena_bytes > self.config.arena_total.saturating_sub(used) {
            return limit(format!(
                "{used} bytes of {} are given out",
                self.config.arena_total
            ));
        }
        Ok(layout)
    }

    fn add_member(
        &mut self,
        id: ConnectionId,
        join: &Join,
        layout: Layout,
    ) -> Result<Answer, Refused> {
        let Some(tenant) = self.tenants.get(&join.tenant) else {
            return Err((
                Refusal::NoSuchTenant,
                format!("no tenant `{}`", join.tenant),
            ));
        };
        let (tenant_id, epoch, slots) = (tenant.id, tenant.epoch, tenant.slots);
        let memory = if self.config.huge_pages {
            Memory::new(layout.arena_bytes, HugePages::Prefer)
        } else {
            Memory::new(layout.arena_bytes, HugePages::No)
        };
        let memory = memory.map_err(|e| system("make an arena", &e))?;
        if let Some(node) = self.card.numa_node()
            && let Err(error) = memory.prefer_node(node)
        {
            tracing::debug!(%error, node, "the arena lies on any node");
        }
        let layout = Layout {
            arena_bytes: memory.len(),
            ..layout
        };
        let page = ControlPage::new(&memory).map_err(|e| system("map the arena", &e))?;
        let event = EventFd::new().map_err(|e| system("make an eventfd", &e))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Not an eventfd: its two ends have flags of their own, so that a worker cannot make us block.
        let (kick, kicked) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|e| system("make a kick socket", &e))?;
        let queue = self
            .card
            .create_queue(tenant_id, join.rank, &memory, &layout, &event)
            .map_err(|error| self.refuse(error))?;
        let fds = [memory.fd(), event.as_fd(), kick.as_fd()].map(|fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned()
                .map_err(|e| system("duplicate a descriptor", &e))
        });
        let fds = match fds.into_iter().collect::<Result<Vec<_>, _>>() {
            Ok(fds) => fds,
            Err(refused) => {
                self.card
                    .release(queue)
                    .map_err(|error| self.refuse(error))?;
                return Err(refused);
            }
        };
        let joined = Joined {
            epoch,
            queue: queue.index(),
            slots,
            segment_bytes: self.card.segment_bytes(),
            iova: queue.iova(),
            layout,
        };
        self.doorbells
            .watch(queue.clone(), page.clone(), &layout, kicked);
        if let Some(tenant) = self.tenants.get_mut(&join.tenant) {
            tenant.members.insert(join.rank, id);
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::Member(Box::new(Member {
                tenant: join.tenant.clone(),
                rank: join.rank,
                queue,
                arena_bytes: layout.arena_bytes,
                page,
                event,
            }));
        }
        Ok(Answer {
            reply: Reply::Joined(joined),
            fds,
        })
    }

    fn abort(&mut self, id: ConnectionId, cause: AbortCause) -> Result<Reply, Refused> {
        let member = self
            .member(id)
            .map(|member| (member.tenant.clone(), member.rank));
        // If it is none any more, somebody else was faster.
        if let Some((name, by)) = member
            && let Some(tenant) = self.tenants.get(&name)
        {
            let waited_for = self.card.oldest_waits_for(tenant.id);
            let missing = ranks_of(waited_for);
            let departed = ranks_of(waited_for & tenant.departed);
            let fate = match cause {
                AbortCause::Timeout | AbortCause::Departed if !departed.is_empty() => Fate::Lost {
                    ranks: departed,
                    what: "left while others went on".into(),
                },
                AbortCause::Departed => return Ok(Reply::Alive),
                AbortCause::Timeout => Fate::Timeout { by, missing },
                AbortCause::Failed { mut what } => {
                    what.truncate(what.floor_char_boundary(1000));
                    Fate::Failed { by, what, missing }
                }
            };
            self.end_epoch(&name, fate);
        }
        self.fate(id)
    }

    fn fate(&self, id: ConnectionId) -> Result<Reply, Refused> {
        match self
            .connections
            .get(&id)
            .map(|connection| &connection.state)
        {
            Some(State::Ended(fate)) => Ok(Reply::Ended(fate.clone())),
            Some(State::Member(_)) => Ok(Reply::Alive),
            _ => Err((
                Refusal::BadRequest,
                "no worker has joined over this connection".into(),
            )),
        }
    }

    fn create_tenant(&mut self, tenant: &CreateTenant) -> Result<Reply, Refused> {
        if let Some(what) = &self.failed {
            return Err((Refusal::CardFailed, what.clone()));
        }
        check_name(&tenant.name)?;
        if self.tenants.contains_key(&tenant.name) {
            return Err((
                Refusal::TenantExists,
                format!("tenant `{}` exists", tenant.name),
            ));
        }
        self.add_tenant(
            &tenant.name,
            tenant.token,
            tenant.world,
            tenant.slots_log2,
            false,
        )?;
        self.tenant(&tenant.name)
            .map(Reply::Created)
            .ok_or((Refusal::CardFailed, "not created".into()))
    }

    fn add_tenant(
        &mut self,
        name: &str,
        token: u64,
        world: u32,
        slots_log2: Option<u8>,
        temporary: bool,
    ) -> Result<(), Refused> {
        if !(1..=self.card.workers_max()).contains(&world) {
            let reason = format!(
                "a world of {world} workers; the card takes 1 to {}",
                self.card.workers_max()
            );
            return Err((Refusal::BadRequest, reason));
        }
        let (wanted, least) = match slots_log2 {
            Some(log2) => (log2, log2),
            None => (self.config.slots_log2.min(self.card.slots_log2()), 0),
        };
        let card = self
            .card
            .create_tenant(world, wanted, least, token)
            .map_err(|error| self.refuse(error))?;
        let tenant = Tenant::new(&card, token, temporary);
        tracing::info!(
            tenant = name,
            id = card.id.index,
            world,
            slots = tenant.slots,
            temporary,
            "tenant created"
        );
        self.tenants.insert(name.to_owned(), tenant);
        Ok(())
    }

    fn info(&self) -> Info {
        Info {
            server: server(),
            card: self.card.address().to_owned(),
            identity: self.card.identity(),
            uptime_s: self.started.elapsed().as_secs(),
            workers: self
                .connections
                .keys()
                .filter(|id| self.member(**id).is_some())
                .count() as u32,
            tenants: self.tenants.len() as u32,
            arena_max: self.config.arena_max,
            auto_create: self.config.auto_create,
        }
    }

    fn tenant(&self, name: &str) -> Option<TenantInfo> {
        let tenant = self.tenants.get(name)?;
        let member = |id: &ConnectionId| {
            let peer = &self.connections.get(id)?.peer;
            self.member(*id).map(|member| MemberInfo {
                rank: member.rank,
                pid: peer.pid,
                uid: peer.uid,
                queue: member.queue.index(),
                arena_bytes: member.arena_bytes,
            })
        };
        Some(TenantInfo {
            name: name.to_owned(),
            id: tenant.id.index,
            world: tenant.world,
            epoch: tenant.epoch,
            slots: tenant.slots,
            temporary: tenant.temporary,
            members: tenant.members.values().filter_map(member).collect(),
            departed: ranks_of(tenant.departed),
        })
    }

    fn stats(&mut self) -> Result<Stats, Refused> {
        let (doorbells, wakeups) = self.doorbells.counters();
        let mut stats = Stats {
            tenants: Default::default(),
            perf: self.card.perf().map_err(|error| self.refuse(error))?,
            hub: phub::control::HubCounters {
                doorbells,
                wakeups,
                ..self.counters
            },
        };
        for (name, tenant) in &self.tenants {
            match self.card.counters(tenant.id) {
                Ok(counters) => drop(stats.tenants.insert(name.clone(), counters)),
                Err(error) => return Err(self.refuse(error)),
            }
        }
        Ok(stats)
    }

    fn slots(&mut self, tenant: Option<&str>) -> Result<Slots, Refused> {
        if let Some(name) = tenant.filter(|name| !self.tenants.contains_key(*name)) {
            return Err((Refusal::NoSuchTenant, format!("no tenant `{name}`")));
        }
        let mut slots = self
            .card
            .slots(&self.tenants)
            .map_err(|error| self.refuse(error))?;
        slots.retain(|slot| tenant.is_none_or(|name| slot.tenant == name));
        let open = slots.len() as u32;
        slots.truncate(SLOTS_MAX);
        Ok(Slots { open, slots })
    }
}

fn system(what: &str, error: &dyn std::fmt::Display) -> Refused {
    (Refusal::LimitReached, format!("cannot {what}: {error}"))
}
