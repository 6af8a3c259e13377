// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The hub daemon: owns a card, lets workers of this host join tenants, passes their doorbells on, and tells them when a
//! peer, the card or the hub itself is gone. `docs/control-protocol.md` says how to talk to it.
//!
//! It has two threads of its own: the control thread (`server`, `hub`, `requests`) and the doorbell thread (`doorbell`). Payload never
//! passes through it: worker memory is mapped by the card.
#![forbid(unsafe_code)]

mod card;
mod config;
mod connection;
mod doorbell;
mod error;
mod hub;
mod requests;
mod server;
mod socket;
mod tenant;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use phub_sys::EventFd;

use card::CardPort;
use doorbell::Doorbells;
use server::Server;
use socket::Listener;

pub use config::{Card, Config};
pub use error::HubError;

/// A hub that serves, in this process. Dropping it shuts it down.
pub struct Daemon {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<Result<(), HubError>>>,
}

impl Daemon {
    /// Opens the card and starts to serve: on return, workers can join.
    pub fn start(config: Config) -> Result<Self, HubError> {
        let listener = Listener::bind(&config.socket)?;
        let card = CardPort::open(&config.card)?;
        let doorbells =
            Doorbells::start().map_err(|e| HubError::system("start the doorbell thread", e))?;
        let stop = Arc::new(EventFd::new().map_err(|e| HubError::system("make an eventfd", e))?);
        tracing::info!(card = card.address(), socket = %config.socket.display(), "serving");
        let hub = hub::Hub {
            config,
            card,
            doorbells,
            connections: BTreeMap::new(),
            tenants: BTreeMap::new(),
            counters: Default::default(),
            started: Instant::now(),
            failed: None,
        };
        let server = Server::new(hub, listener, stop.clone());
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || server.run())
            .map_err(|e| HubError::system("start the control thread", e))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Makes [`Daemon::wait`] return, from any thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Waits until it ends: because it was told to, or because the card is gone.
    pub fn wait(mut self) -> Result<(), HubError> {
        self.join()
    }

    /// Shuts down: workers are told, the card forgets them, the socket is removed.
    pub fn stop(mut self) -> Result<(), HubError> {
        self.stopper().stop();
        self.join()
    }

    fn join(&mut self) -> Result<(), HubError> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stopper().stop();
            if let Err(error) = self.join() {
                tracing::error!(%error, "hub");
            }
        }
    }
}

/// Shuts a hub down from another thread.
#[derive(Clone)]
pub struct Stopper(Arc<EventFd>);

impl Stopper {
    /// Shuts it down.
    pub fn stop(&self) {
        // An eventfd of our own: signalling does not fail.
        let _ = self.0.signal();
    }
}
