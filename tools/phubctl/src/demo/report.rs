// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! What a demo worker tells the demo, as frames on its standard output.
//!
//! A frame is two little-endian `u32` lengths, a JSON [`Report`], and FP32 values.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};

/// More than any frame of the demo needs; a longer one is not ours.
const FRAME_MAX: u32 = 1 << 20;

/// News of one worker. The values beside it are named in each variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// A step is done. Values: the mean gradient, from rank 0 only.
    Step {
        loss: f64,
        correct: usize,
        images: usize,
    },
    /// The last step is done. Values: the weights.
    Done { accuracy: f64 },
    /// The worker gave up.
    Failed { error: String },
}

/// Writes one frame.
pub(crate) fn send(out: &mut impl Write, report: &Report, values: &[f32]) -> Result<()> {
    let json = serde_json::to_vec(report)?;
    let bytes = size_of_val(values);
    let mut frame = Vec::with_capacity(8 + json.len() + bytes);
    frame.extend(u32::try_from(json.len())?.to_le_bytes());
    frame.extend(u32::try_from(bytes)?.to_le_bytes());
    frame.extend(json);
    frame.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    out.write_all(&frame)
        .context("the demo does not listen any more")?;
    Ok(out.flush()?)
}

/// Reads one frame; `None` at the end of the stream.
pub(crate) fn receive(from: &mut impl Read) -> Result<Option<(Report, Vec<f32>)>> {
    let mut lengths = [0; 8];
    match from.read_exact(&mut lengths) {
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let [a, b, c, d, e, f, g, h] = lengths;
    let (json, bytes) = (
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    );
    if json > FRAME_MAX || bytes > FRAME_MAX {
        bail!("a worker wrote something that is not a report");
    }
    let mut body = vec![0; (json + bytes) as usize];
    from.read_exact(&mut body)?;
    let (json, values) = body.split_at(json as usize);
    let values = values
        .as_chunks()
        .0
        .iter()
        .map(|&b| f32::from_le_bytes(b))
        .collect();
    Ok(Some((serde_json::from_slice(json)?, values)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back() {
        let mut wire = Vec::new();
        let step = Report::Step {
            loss: 2.3,
            correct: 3,
            images: 32,
        };
        let done = Report::Done { accuracy: 0.97 };
        send(&mut wire, &step, &[]).unwrap();
        send(&mut wire, &done, &[1.5, f32::INFINITY]).unwrap();
        let mut from = wire.as_slice();
        assert_eq!(receive(&mut from).unwrap(), Some((step, vec![])));
        assert_eq!(
            receive(&mut from).unwrap(),
            Some((done, vec![1.5, f32::INFINITY]))
        );
        assert_eq!(receive(&mut from).unwrap(), None);
    }

    #[test]
    fn other_output_is_refused() {
        assert!(receive(&mut b"hello, world\n".as_slice()).is_err());
        assert!(receive(&mut [2, 0, 0, 0, 4, 0, 0, 0, b'{'].as_slice()).is_err());
    }
}
