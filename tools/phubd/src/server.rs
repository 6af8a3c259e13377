// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The control thread: one poll loop over the listener, the connections, their processes, and what else can happen.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use phub::Refusal;
use phub::control::{Fate, Reply, Request, receive, send};
use phub_sys::EventFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::HubError;
use crate::card::CardPort;
use crate::config::{CONNECTIONS_MAX, Card};
use crate::connection::{Connection, ConnectionId, State};
use crate::hub::Hub;
use crate::socket::Listener;

/// How often the card is looked at while it has workers.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// How often a card that is gone is looked for.
const REOPEN_EVERY: Duration = Duration::from_secs(1);
/// How often it is seen whether it has been opened.
const OPENING_EVERY: Duration = Duration::from_millis(50);
/// How long workers have to ask for their fate before a hub that ends closes their connections.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) struct Server {
    hub: Hub,
    listener: Listener,
    /// Signalled: shut down.
    stop: Arc<EventFd>,
    next_id: ConnectionId,
    next_check: Instant,
    /// A card that is being opened again, on a thread of its own: it may take long.
    opening: Option<mpsc::Receiver<Result<CardPort, HubError>>>,
    next_opening: Instant,
    /// When to end at the latest.
    farewell: Option<Instant>,
}

/// What a descriptor of the poll set is about.
#[derive(Clone, Copy)]
enum Source {
    Stop,
    Doorbells,
    Card,
    Listener,
    Connection(ConnectionId),
    Process(ConnectionId),
}

impl Server {
    pub(crate) fn new(hub: Hub, listener: Listener, stop: Arc<EventFd>) -> Self {
        Self {
            hub,
            listener,
            stop,
            next_id: 0,
            next_check: Instant::now(),
            opening: None,
            next_opening: Instant::now(),
            farewell: None,
        }
    }

    /// Serves until told to stop, or a card of this process is gone, which cannot come back.
    pub(crate) fn run(mut self) -> Result<(), HubError> {
        loop {
            let ready = self.wait()?;
            let is = |source: fn(&Source) -> bool| ready.iter().any(source);
            if is(|s| matches!(s, Source::Stop)) && self.farewell.is_none() {
                tracing::info!("shutting down");
                self.hub.dismiss_all(&Fate::Shutdown);
                self.farewell = Some(Instant::now() + FAREWELL);
            }
            let due = self.hub.has_members() && Instant::now() >= self.next_check;
            if due || is(|s| matches!(s, Source::Doorbells | Source::Card)) {
                self.hub.look_after_card();
                self.next_check = Instant::now() + CHECK_EVERY;
            }
            self.serve(&ready);
            if is(|s| matches!(s, Source::Listener)) {
                self.accept()?;
            }
            if self.hub.failed.is_some() {
                match &self.hub.config.card {
                    Card::Address(address) => {
                        let address = address.clone();
                        self.look_for_card(address);
                    }
                    Card::Function(_) => {
                        self.farewell
                            .get_or_insert_with(|| Instant::now() + FAREWELL);
                    }
                }
            }
            if self
                .farewell
                .is_some_and(|end| Instant::now() >= end || !self.hub.has_mourners())
            {
                return match self.hub.failed.take() {
                    Some(what) => Err(HubError::CardGone(what)),
                    None => Ok(()),
                };
            }
        }
    }

    /// Opens a card that is gone, again and again.
    fn look_for_card(&mut self, address: String) {
        let Some(opening) = &self.opening else {
            if Instant::now() < self.next_opening {
                return;
            }
            let (opened, opening) = mpsc::channel();
            let thread = std::thread::Builder::new()
                .name("opening".into())
                .spawn(move || {
                    // A server that has ended meanwhile does not want it.
                    let _ = opened.send(CardPort::open(&Card::Address(address)));
                });
            if let Err(error) = thread {
                tracing::warn!(%error, "no thread to open the card");
            }
            self.opening = Some(opening);
            return;
        };
        match opening.try_recv() {
            Err(mpsc::TryRecvError::Empty) => return,
            Ok(Ok(card)) => self.hub.card_is_back(card),
            Ok(Err(error)) => tracing::debug!(%error, "the card is not back yet"),
            Err(mpsc::TryRecvError::Disconnected) => tracing::warn!("opening the card panicked"),
        }
        self.opening = None;
        self.next_opening = Instant::now() + REOPEN_EVERY;
    }

    /// Waits until something happens; what.
    fn wait(&mut self) -> Result<Vec<Source>, HubError> {
        let now = Instant::now();
        let next_check = self.hub.has_members().then_some(self.next_check);
        let next_look = self.hub.failed.is_some().then(|| match self.opening {
            Some(_) => now + OPENING_EVERY,
            None => self.next_opening,
        });
        let timeout = [self.farewell, next_check, next_look]
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.saturating_duration_since(now));
        // Rounded up by a little, so that what is due is due when we wake.
        let timeout = timeout
            .and_then(|timeout| Timespec::try_from(timeout + Duration::from_micros(100)).ok());

        let mut sources = vec![Source::Doorbells, Source::Card];
        let mut fds: Vec<BorrowedFd<'_>> = vec![
            self.hub.doorbells.reported().as_fd(),
            self.hub.card.error_event(),
        ];
        if self.farewell.is_none() {
            // Signalled once is enough: it stays so.
            sources.push(Source::Stop);
            fds.push(self.stop.as_fd());
            if self.hub.connections.len() < CONNECTIONS_MAX {
                sources.push(Source::Listener);
                fds.push(self.listener.as_fd());
            }
        }
        for (id, connection) in &self.hub.connections {
            sources.push(Source::Connection(*id));
            fds.push(connection.socket.as_fd());
            if let Some(pidfd) = &connection.peer.pidfd {
                sources.push(Source::Process(*id));
                fds.push(pidfd.as_fd());
            }
        }
        let mut fds: Vec<_> = fds
            .iter()
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(HubError::system("wait", error)),
        }
        Ok(sources
            .into_iter()
            .zip(&fds)
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(source, _)| source)
            .collect())
    }

    /// Takes one request of each connection that has one. Those that have closed come first, all together: a message to the others
    /// names everybody who is missing.
    fn serve(&mut self, ready: &[Source]) {
        let mut closed = Vec::new();
        let mut requests = Vec::new();
        for source in ready {
            match *source {
                Source::Process(id) => closed.push(id),
                Source::Connection(id) => {
                    let Some(connection) = self.hub.connections.get(&id) else {
                        continue;
                    };
                    match receive::<Request>(&connection.socket) {
                        Ok(Some(received)) => requests.push((id, received.message)),
                        Ok(None) => closed.push(id),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        Err(error) if error.kind() == ErrorKind::InvalidData => {
                            self.hub.counters.refusals += 1;
                            let reply = Reply::Refused {
                                code: Refusal::BadRequest,
                                reason: error.to_string(),
                            };
                            if send(&connection.socket, &reply, &[]).is_err() {
                                closed.push(id);
                            }
                        }
                        Err(_) => closed.push(id),
                    }
                }
                _ => {}
            }
        }
        closed.sort_unstable();
        closed.dedup();
        self.hub.closed(&closed);
        let mut deaf = Vec::new();
        for (id, request) in requests {
            if !self.hub.connections.contains_key(&id) {
                continue;
            }
            let answer = self.hub.answer(id, request);
            let fds: Vec<_> = answer.fds.iter().map(AsFd::as_fd).collect();
            if let Some(connection) = self.hub.connections.get(&id)
                && let Err(error) = send(&connection.socket, &answer.reply, &fds)
            {
                // It does not read its answers, or has closed.
                tracing::debug!(%error, "answer not taken");
                deaf.push(id);
            }
        }
        self.hub.closed(&deaf);
    }

    fn accept(&mut self) -> Result<(), HubError> {
        while self.hub.connections.len() < CONNECTIONS_MAX {
            let (socket, peer) = match self.listener.accept() {
                Ok(Some(accepted)) => accepted,
                Ok(None) => break,
                Err(error) => {
                    // Out of descriptors, for one: those who are there go on.
                    tracing::warn!(%error, "connection not accepted");
                    std::thread::sleep(Duration::from_millis(10));
                    break;
                }
            };
            tracing::debug!(pid = peer.pid, uid = peer.uid, "connection");
            self.hub.connections.insert(
                self.next_id,
                Connection {
                    socket,
                    peer,
                    state: State::Greeting,
                },
            );
            self.next_id += 1;
        }
        Ok(())
    }
}
