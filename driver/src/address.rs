// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Where a card is, as users write it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;

/// An address that could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no card address; write `0000:3b:00.0` for a card of this host, `vfio-user:/path/to/socket` for a simulated one"
)]
pub struct AddressError {
    /// What was written.
    pub text: String,
}

/// A function on the PCI bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Domain (segment).
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, below 32.
    pub device: u8,
    /// Function, below 8.
    pub function: u8,
}

impl FromStr for PciAddress {
    type Err = AddressError;

    /// `0000:3b:00.0`, or `3b:00.0` in domain 0.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let parse = || {
            let (rest, function) = text.split_once('.')?;
            let (rest, device) = rest.rsplit_once(':')?;
            let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0000", rest));
            Some(Self {
                domain: hex(domain, 4..=8)?,
                bus: hex(bus, 2..=2)? as u8,
                device: hex(device, 2..=2).filter(|d| *d < 32)? as u8,
                function: hex(function, 1..=1).filter(|f| *f < 8)? as u8,
            })
        };
        parse().ok_or_else(|| AddressError { text: text.into() })
    }
}

/// A hexadecimal number of that many digits, without sign.
fn hex(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let plain = digits.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(text, 16).ok())?
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain, self.bus, self.device, self.function
        )
    }
}

impl Serialize for PciAddress {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Where a card is; decides the back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardAddress {
    /// In this host, bound to vfio-pci.
    Vfio(PciAddress),
    /// Behind a socket that speaks vfio-user: a simulated card.
    VfioUser(PathBuf),
}

impl FromStr for CardAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("vfio-user:") {
            let path = PathBuf::from(path);
            return match path.as_os_str().is_empty() {
                true => Err(AddressError { text: text.into() }),
                false => Ok(Self::VfioUser(path)),
            };
        }
        let address = text.strip_prefix("vfio:").unwrap_or(text);
        address
            .parse()
            .map(Self::Vfio)
            .map_err(|_| AddressError { text: text.into() })
    }
}

impl fmt::Display for CardAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vfio(address) => address.fmt(f),
            Self::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for text in [
            "0000:3b:00.0",
            "10000:ff:1f.7",
            "vfio-user:/run/phub/card.sock",
        ] {
            assert_eq!(text.parse::<CardAddress>().unwrap().to_string(), text);
        }
        for text in ["vfio:0000:3b:00.1", "3b:00.1", "0000:3B:00.1"] {
            assert_eq!(
                text.parse::<CardAddress>().unwrap().to_string(),
                "0000:3b:00.1"
            );
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "vfio-user:",
            "vfio:",
            "3b",
            "3b:00",
            "0000:3b:00.8",
            "0000:3b:20.0",
            "0:3b:00.0",
            "0000:3b:00.0.0",
            "0000:+b:00.0",
            "x:0000:3b:00.0",
            "0000:3b:00.",
            "../0000:3b:00.0",
            "123456789:3b:00.0",
        ] {
            assert_eq!(
                text.parse::<CardAddress>(),
                Err(AddressError { text: text.into() }),
                "{text}"
            );
        }
    }
}
