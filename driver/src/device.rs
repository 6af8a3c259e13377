// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! A card: bring-up, commands, and the end.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use phub_abi::BAR0_BYTES;
use phub_abi::regs::*;
use phub_pci::config::{COMMAND, COMMAND_MASTER, COMMAND_MEMORY};
use phub_pci::{PciFunction, RegisterIoExt};
use phub_sys::EventFd;

use crate::error::ALL_ONES;
use crate::interrupts::Interrupts;
use crate::iova::Iovas;
use crate::slots::Slots;
use crate::tenant::TenantEntry;
use crate::{CardAddress, Command, Error, Identity, PciInfo, Result};

/// How patient a driver is.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Time limit for bring-up, and for each command.
    pub deadline: Duration,
}

impl Default for Options {
    /// Ten seconds, which suits a simulated card.
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
        }
    }
}

/// A card that is enabled. Clones are handles on the same card, which is disabled when the last handle and the last
/// queue are gone.
#[derive(Clone)]
pub struct Device {
    pub(crate) card: Arc<Card>,
}

/// What all handles share. Locks are taken in the order of the fields.
pub(crate) struct Card {
    pub(crate) pci: Arc<dyn PciFunction>,
    pub(crate) identity: Identity,
    deadline: Duration,
    /// Held by whoever changes what the card does: one command at a time.
    admin: Mutex<()>,
    /// What is in use. Never held while waiting.
    tables: Mutex<Tables>,
    interrupts: Mutex<Interrupts>,
    /// Held over accesses that use an index register or a latch.
    windows: Mutex<()>,
    /// Why the card was given up.
    failure: OnceLock<Failure>,
}

/// What is in use.
pub(crate) struct Tables {
    pub(crate) tenants: Vec<Option<TenantEntry>>,
    /// Tenant number of each open queue.
    pub(crate) queues: Vec<Option<u32>>,
    pub(crate) slots: Slots,
    pub(crate) iovas: Iovas,
    /// Distinguishes tenants that had the same number one after the other.
    pub(crate) generation: u32,
}

struct Failure {
    reason: String,
    /// The function was reset since, so that the card will not touch any memory.
    at_rest: bool,
}

/// Proof that the holder is the one who changes what the card does.
pub(crate) type Admin<'a> = MutexGuard<'a, ()>;

impl Device {
    /// Opens the card at an address.
    ///
    /// # Errors
    /// [`Error::Vfio`] and [`Error::Pci`] if its function cannot be opened; those of [`Device::new`].
    pub fn open(address: &CardAddress) -> Result<Self> {
        Self::new(crate::backend::connect(address)?)
    }

    /// Resets and enables the card behind a PCI function.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], [`Error::WrongMagic`], [`Error::AbiMismatch`], [`Error::BadIdentity`] for what is not
    /// a card this driver can drive; [`Error::NotReady`], [`Error::CardGone`], [`Error::Pci`] if it does not answer.
    pub fn new(pci: Arc<dyn PciFunction>) -> Result<Self> {
        Self::with_options(pci, Options::default())
    }

    /// The same, with another deadline.
    ///
    /// # Errors
    /// Those of [`Device::new`].
    pub fn with_options(pci: Arc<dyn PciFunction>, options: Options) -> Result<Self> {
        PciInfo::read(&*pci)?.check(pci.address())?;
        // Whoever used the card before may have left queues running.
        pci.reset()?;
        let mut command = [0; 2];
        pci.config_read(COMMAND, &mut command)?;
        let command = u16::from_le_bytes(command) | COMMAND_MEMORY | COMMAND_MASTER;
        pci.config_write(COMMAND, &command.to_le_bytes())?;
        await_registers(&*pci, options.deadline)?;
        let identity = Identity::read(&*pci)?;
        if pci.bar_bytes() < BAR0_BYTES {
            let what = format!("a BAR0 of {:#x} bytes", pci.bar_bytes());
            return Err(Error::BadIdentity {
                address: pci.address(),
                what,
            });
        }
        let tables = Tables {
            tenants: (0..identity.tenants).map(|_| None).collect(),
            queues: vec![None; identity.queues as usize],
            slots: Slots::new(identity.slots.ilog2()),
            iovas: Iovas::new(),
            generation: 0,
        };
        let interrupts = Interrupts::connect(&*pci, identity.queues as usize + 1)?;
        let card = Arc::new(Card {
            pci,
            identity,
            deadline: options.deadline,
            admin: Mutex::new(()),
            tables: Mutex::new(tables),
            interrupts: Mutex::new(interrupts),
            windows: Mutex::new(()),
            failure: OnceLock::new(),
        });
        card.enable(true)?;
        tracing::info!(address = card.pci.address(), identity = ?card.identity, "card enabled");
        Ok(Self { card })
    }

    /// What the card says of itself.
    pub fn identity(&self) -> &Identity {
        &self.card.identity
    }

    /// Where the card is.
    pub fn address(&self) -> String {
        self.card.pci.address()
    }

    /// What the card's configuration space says.
    ///
    /// # Errors
    /// Those of [`PciInfo::read`].
    pub fn pci_info(&self) -> Result<PciInfo> {
        PciInfo::read(&*self.card.pci)
    }

    /// Signalled when the card has an error to report: see [`Device::take_errors`].
    ///
    /// # Errors
    /// [`Error::System`] without a file descriptor left.
    pub fn error_event(&self) -> Result<EventFd> {
        lock(&self.card.interrupts).error_event()
    }

    /// Lets the card work while somebody polls memory for what it writes; see [`PciFunction::relax`].
    pub fn relax(&self) {
        self.card.pci.relax();
    }

    /// NUMA node the card is attached to, if that is known.
    pub fn numa_node(&self) -> Option<u32> {
        self.card.pci.numa_node()
    }

    /// Interrupts fire after `count` completions or `timeout` card cycles after the first, whichever is sooner.
    /// Zero and one completion mean at once, which is how a card starts.
    ///
    /// # Errors
    /// Those of a register access.
    pub fn set_coalescing(&self, count: u8, timeout: u32) -> Result<()> {
        let value = IrqCoalesce::default()
            .with_count(count.into())
            .with_timeout(timeout.min((1 << 24) - 1));
        Ok(self.card.pci.set(value)?)
    }
}

impl Card {
    /// Becomes the one who changes what the card does, if there still is a card.
    pub(crate) fn admin(&self) -> Result<Admin<'_>> {
        let guard = lock(&self.admin);
        self.check()?;
        Ok(guard)
    }

    /// The same for whoever cleans up, also after a failure.
    pub(crate) fn admin_anyway(&self) -> Admin<'_> {
        lock(&self.admin)
    }

    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables> {
        lock(&self.tables)
    }

    pub(crate) fn interrupts(&self) -> MutexGuard<'_, Interrupts> {
        lock(&self.interrupts)
    }

    pub(crate) fn windows(&self) -> MutexGuard<'_, ()> {
        lock(&self.windows)
    }

    /// [`Error::CardFailed`] if the card was given up.
    pub(crate) fn check(&self) -> Result<()> {
        match self.failure.get() {
            Some(failure) => Err(Error::CardFailed {
                address: self.pci.address(),
                reason: failure.reason.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Whether the card was given up; if so, whether it is known not to touch memory any more.
    pub(crate) fn given_up(&self) -> Option<bool> {
        self.failure.get().map(|failure| failure.at_rest)
    }

    /// Reads a register, and does not take the all ones of a missing card for a value.
    pub(crate) fn read<R: Register>(&self, index: u32) -> Result<R> {
        let value: R = self.pci.get_at(index)?;
        if value.bits() == u32::MAX && self.pci.get::<Magic>()?.value() == u32::MAX {
            let reason = ALL_ONES.into();
            return Err(Error::CardGone {
                address: self.pci.address(),
                reason,
            });
        }
        Ok(value)
    }

    /// Runs a command to its end. A card that does not come to the end is given up.
    pub(crate) fn command(&self, admin: &Admin<'_>, what: Command) -> Result<()> {
        let (op, index) = match what {
            Command::Abort(tenant) => (1, tenant),
            Command::Stop(queue) => (2, queue),
        };
        let command = Cmd::default().with_op(op).with_index(index);
        self.pci.set(command)?;
        // Writes are posted: reading it back tells that the card has it, and not the end of an earlier command.
        if self.read::<Cmd>(0)? != command {
            return Err(Error::CommandRefused {
                address: self.pci.address(),
                what,
            });
        }
        let done = wait(&*self.pci, self.deadline, || {
            let status: CmdStatus = self.read(0)?;
            Ok((!status.busy()).then_some(status))
        })?;
        let Some(status) = done else {
            let error = Error::CommandTimeout {
                address: self.pci.address(),
                what,
                millis: millis(self.deadline),
                fatal: self.read::<Fatal>(0)?.code(),
            };
            // It may still finish this command later, which would look like the end of the next one.
            self.give_up(admin, &error);
            return Err(error);
        };
        match status.refused() {
            true => Err(Error::CommandRefused {
                address: self.pci.address(),
                what,
            }),
            false => Ok(()),
        }
    }

    /// Sets `ctrl.enable` and waits until `status.ready` follows.
    fn enable(&self, on: bool) -> Result<()> {
        self.pci.set(Ctrl::default().with_enable(on))?;
        let followed = wait(&*self.pci, self.deadline, || {
            Ok((self.read::<Status>(0)?.ready() == on).then_some(()))
        })?;
        match followed {
            Some(()) => Ok(()),
            None => Err(Error::NotReady {
                address: self.pci.address(),
                state: if on { "ready" } else { "at rest" },
                millis: millis(self.deadline),
                fatal: self.read::<Fatal>(0)?.code(),
            }),
        }
    }

    /// Gives the card up because it does not do what it must: resets its function, so that it lets go of all memory.
    /// A card that is not on the bus any more has let go, and resetting it can take the kernel a minute.
    pub(crate) fn give_up(&self, _admin: &Admin<'_>, reason: &Error) {
        if self.failure.get().is_some() {
            return;
        }
        let reset = match self.pci.get::<Magic>() {
            Ok(magic) if magic.value() == u32::MAX => Ok(()),
            _ => self.pci.reset(),
        };
        if let Err(error) = &reset {
            tracing::error!(%error, "the card could not be reset: the memory it may use is kept");
        }
        tracing::error!(address = self.pci.address(), %reason, "card given up");
        let failure = Failure {
            reason: reason.to_string(),
            at_rest: reset.is_ok(),
        };
        // Only who holds the admin lock sets it, so it was empty.
        let _ = self.failure.set(failure);
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // Queues hold the card, so there are none, and nothing is mapped.
        if self.failure.get().is_some() {
            return;
        }
        let rest = self.enable(false).and_then(|()| {
            self.pci.set_interrupts(&[])?;
            let mut command = [0; 2];
            self.pci.config_read(COMMAND, &mut command)?;
            let command = u16::from_le_bytes(command) & !COMMAND_MASTER;
            Ok(self.pci.config_write(COMMAND, &command.to_le_bytes())?)
        });
        if let Err(error) = rest {
            tracing::warn!(%error, "the card did not come to rest, it is reset");
            if let Err(error) = self.pci.reset() {
                tracing::warn!(%error, "the card could not be reset");
            }
        }
    }
}

/// A card may read all ones for a while after a reset.
fn await_registers(pci: &dyn PciFunction, deadline: Duration) -> Result<()> {
    wait(pci, deadline, || {
        Ok((pci.get::<Magic>()?.value() != u32::MAX).then_some(()))
    })?;
    Ok(())
}

/// Calls `probe` until it gives something, or `deadline` is over.
pub(crate) fn wait<T>(
    pci: &dyn PciFunction,
    deadline: Duration,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    // Most waits are over in microseconds; a long one should not cost a processor.
    const EAGER: Duration = Duration::from_millis(1);
    const NAP: Duration = Duration::from_micros(100);
    let start = Instant::now();
    loop {
        // Taken before the probe, so that a late wake-up is no timeout.
        let waited = start.elapsed();
        if let Some(found) = probe()? {
            return Ok(Some(found));
        }
        if waited >= deadline {
            return Ok(None);
        }
        pci.relax();
        if waited > EAGER {
            std::thread::sleep(NAP);
        }
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Tables are changed in steps that do not panic, so a panic elsewhere leaves them whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
