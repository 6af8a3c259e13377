// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Message layouts of vfio-user 0.1, little endian. Pure: no socket in here.

use rustix::io::Errno;

/// Protocol version spoken.
pub(crate) const VERSION: (u16, u16) = (0, 1);
/// Bytes of a message header.
pub(crate) const HEADER: usize = 16;
/// Most bytes of region data in one message.
pub(crate) const DATA_MAX: u32 = 1 << 20;
/// Longest message accepted: the data and the largest fixed part before it.
pub(crate) const MESSAGE_MAX: usize = DATA_MAX as usize + 64;
/// Most file descriptors accepted with one message.
pub(crate) const FDS_MAX: usize = 16;
/// Regions and interrupt indices of a PCI device, as in `linux/vfio.h`.
pub(crate) const REGIONS: u32 = 9;
pub(crate) const IRQS: u32 = 5;

pub(crate) const REGION_BAR0: u32 = 0;
pub(crate) const REGION_BAR2: u32 = 2;
pub(crate) const REGION_CONFIG: u32 = 7;
pub(crate) const IRQ_MSIX: u32 = 2;
pub(crate) const IRQ_ERR: u32 = 3;

pub(crate) const DEVICE_FLAGS: u32 = 1 << 0 | 1 << 1; // can be reset; PCI
pub(crate) const REGION_FLAGS: u32 = 1 << 0 | 1 << 1; // read, write
pub(crate) const IRQ_INFO_FLAGS: u32 = 1 << 0 | 1 << 3; // eventfd; cannot be resized
pub(crate) const IRQ_DATA_NONE: u32 = 1 << 0;
pub(crate) const IRQ_DATA_BOOL: u32 = 1 << 1;
pub(crate) const IRQ_DATA_EVENTFD: u32 = 1 << 2;
pub(crate) const IRQ_ACTION_TRIGGER: u32 = 1 << 5;
pub(crate) const MAP_READ_WRITE: u32 = 1 << 0 | 1 << 1;
pub(crate) const UNMAP_ALL: u32 = 1 << 1;

const TYPE: u32 = 0xf;
const REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// Commands with a meaning here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Command {
    Version = 1,
    DmaMap = 2,
    DmaUnmap = 3,
    DeviceInfo = 4,
    RegionInfo = 5,
    IrqInfo = 7,
    SetIrqs = 8,
    RegionRead = 9,
    RegionWrite = 10,
    Reset = 13,
}

impl Command {
    const ALL: [Self; 10] = [
        Self::Version,
        Self::DmaMap,
        Self::DmaUnmap,
        Self::DeviceInfo,
        Self::RegionInfo,
        Self::IrqInfo,
        Self::SetIrqs,
        Self::RegionRead,
        Self::RegionWrite,
        Self::Reset,
    ];

    pub(crate) fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|c| *c as u16 == code)
    }
}

/// The 16 bytes before every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: u16,
    pub(crate) command: u16,
    /// Bytes of the message, header included.
    pub(crate) size: u32,
    flags: u32,
    error: u32,
}

impl Header {
    pub(crate) fn command(id: u16, command: Command, posted: bool) -> Self {
        Self {
            id,
            command: command as u16,
            size: 0,
            flags: if posted { NO_REPLY } else { 0 },
            error: 0,
        }
    }

    pub(crate) fn reply(to: &Self, result: Result<(), Errno>) -> Self {
        let (flags, error) = match result {
            Ok(()) => (REPLY, 0),
            Err(errno) => (REPLY | ERROR, errno.raw_os_error().unsigned_abs()),
        };
        Self {
            id: to.id,
            command: to.command,
            size: 0,
            flags,
            error,
        }
    }

    pub(crate) fn decode(b: &[u8; HEADER]) -> Self {
        let [
            i0,
            i1,
            c0,
            c1,
            s0,
            s1,
            s2,
            s3,
            f0,
            f1,
            f2,
            f3,
            e0,
            e1,
            e2,
            e3,
        ] = *b;
        Self {
            id: u16::from_le_bytes([i0, i1]),
            command: u16::from_le_bytes([c0, c1]),
            size: u32::from_le_bytes([s0, s1, s2, s3]),
            flags: u32::from_le_bytes([f0, f1, f2, f3]),
            error: u32::from_le_bytes([e0, e1, e2, e3]),
        }
    }

    /// The whole message.
    pub(crate) fn encode(&self, body: &[u8]) -> Vec<u8> {
        let size = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
        let mut m = Vec::with_capacity(HEADER + body.len());
        m.extend(self.id.to_le_bytes());
        m.extend(self.command.to_le_bytes());
        for word in [size, self.flags, self.error] {
            m.extend(word.to_le_bytes());
        }
        m.extend(body);
        m
    }

    pub(crate) fn is_command(&self) -> bool {
        self.flags & TYPE == 0
    }

    pub(crate) fn is_reply(&self) -> bool {
        self.flags & TYPE == REPLY
    }

    /// The sender of this command wants no reply.
    pub(crate) fn is_posted(&self) -> bool {
        self.flags & NO_REPLY != 0
    }

    /// The refusal this reply carries.
    pub(crate) fn refusal(&self) -> Option<std::io::Error> {
        let errno = i32::try_from(self.error)
            .ok()
            .filter(|e| *e > 0)
            .unwrap_or(Errno::IO.raw_os_error());
        (self.flags & ERROR != 0).then(|| std::io::Error::from_raw_os_error(errno))
    }
}

/// Takes fields off the front of a message body.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, n: usize) -> Result<&'a [u8], Errno> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Errno> {
        self.bytes(N)?.try_into().map_err(|_| Errno::INVAL)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Errno> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Errno> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Errno> {
        self.array().map(u64::from_le_bytes)
    }
}

/// Puts fields one after the other into a message body.
#[derive(Default)]
pub(crate) struct Body(pub(crate) Vec<u8>);

impl Body {
    pub(crate) fn u16(mut self, v: u16) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }

    pub(crate) fn u32(mut self, v: u32) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }

    pub(crate) fn u64(mut self, v: u64) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, v: &[u8]) -> Self {
        self.0.extend(v);
        self
    }
}

/// What each side tells the other in the version message. Absent fields have the specification's defaults.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Capabilities {
    pub(crate) max_msg_fds: usize,
    pub(crate) max_data_xfer_size: u32,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            max_msg_fds: 1,
            max_data_xfer_size: DATA_MAX,
        }
    }
}

#[derive(serde::Serialize, serde::Deserialize, Default)]
#[serde(default)]
struct VersionData {
    capabilities: Capabilities,
}

/// Body of a version message: our limits, and our version, but no later a minor one than `minor`: a server answers with
/// what both know, and clients refuse more.
pub(crate) fn version_body(minor: u16) -> Body {
    let data = VersionData {
        capabilities: Capabilities {
            max_msg_fds: FDS_MAX,
            max_data_xfer_size: DATA_MAX,
        },
    };
    let json = serde_json::to_vec(&data).unwrap_or_default();
    Body::default()
        .u16(VERSION.0)
        .u16(VERSION.1.min(minor))
        .bytes(&json)
        .bytes(&[0])
}

/// The other side's minor version and limits.
pub(crate) fn parse_version(body: &[u8]) -> Result<(u16, Capabilities), Errno> {
    let mut fields = Fields(body);
    let (major, minor) = (fields.u16()?, fields.u16()?);
    if major != VERSION.0 {
        return Err(Errno::PROTONOSUPPORT);
    }
    let json = fields.0.split(|b| *b == 0).next().unwrap_or_default();
    if json.is_empty() {
        return Ok((minor, Capabilities::default()));
    }
    let data = serde_json::from_slice::<VersionData>(json).map_err(|_| Errno::INVAL)?;
    Ok((minor, data.capabilities))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_wire() {
        let h = Header::command(7, Command::RegionWrite, true);
        let m = h.encode(&[1, 2, 3]);
        let back = Header::decode(m[..HEADER].try_into().unwrap());
        assert_eq!(back, Header { size: 19, ..h });
        assert!(back.is_command() && back.is_posted() && !back.is_reply());
        let r = Header::reply(&back, Err(Errno::NOSPC));
        assert!(r.is_reply());
        assert_eq!(
            r.refusal().unwrap().raw_os_error(),
            Some(Errno::NOSPC.raw_os_error())
        );
        assert!(Header::reply(&back, Ok(())).refusal().is_none());
    }

    #[test]
    fn a_refusal_without_a_number_is_still_a_refusal() {
        for error in [0, u32::MAX] {
            let h = Header {
                id: 0,
                command: 1,
                size: 16,
                flags: REPLY | ERROR,
                error,
            };
            assert_eq!(
                h.refusal().unwrap().raw_os_error(),
                Some(Errno::IO.raw_os_error())
            );
        }
    }

    #[test]
    fn version_messages() {
        let ours = parse_version(&version_body(1).0).unwrap().1;
        assert_eq!(
            (ours.max_msg_fds, ours.max_data_xfer_size),
            (FDS_MAX, DATA_MAX)
        );
        assert_eq!(parse_version(&[0, 0, 1, 0]).unwrap().1.max_msg_fds, 1);
        assert_eq!(parse_version(&[0, 0, 1, 0, 0]).unwrap().1.max_msg_fds, 1);
        assert_eq!(
            version_body(0).0[..4],
            [0; 4],
            "a client of version 0.0 gets no more"
        );
        let qemu = b"\0\0\0\0{\"capabilities\":{\"max_msg_fds\":8,\"pgsizes\":4096,\"migration\":{\"pgsize\":4096}}}\0";
        assert_eq!(parse_version(qemu).unwrap().1.max_msg_fds, 8);
        for bad in [
            &b"\x01\0\0\0"[..],
            b"\0\0\0",
            b"\0\0\0\0{",
            b"\0\0\0\0{\"capabilities\":7}\0",
        ] {
            assert!(parse_version(bad).is_err(), "{bad:?}");
        }
        let deep = [&[0; 4][..], &[b'['; 100_000][..]].concat();
        assert!(
            parse_version(&deep).is_err(),
            "nested JSON ends in an error, not in a stack overflow"
        );
    }

    #[test]
    fn fields_do_not_read_past_the_end() {
        let mut f = Fields(&[1, 0, 2, 0, 0]);
        assert_eq!(f.u16(), Ok(1));
        assert_eq!(f.u32(), Err(Errno::INVAL));
        assert_eq!(f.u16(), Ok(2));
        assert_eq!(f.u64(), Err(Errno::INVAL));
    }
}
