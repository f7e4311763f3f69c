//! Normalisation and rotary embedding, on the kernels made for them.

use super::{Step, in_parts};
use crate::engine::memory::{Frame, StepResult};
use crate::graph::ValueId;
use crate::kernels::{Rotary as Angles, RotaryStyle};

/// out ← x / √(mean(x²) + epsilon) · gamma, for each row.
#[derive(Debug)]
pub(in crate::engine) struct RmsNorm {
    pub x: ValueId,
    pub gamma: ValueId,
    pub out: ValueId,
    pub epsilon: f32,
}

impl Step for RmsNorm {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let row = shared.dims(self.gamma)[0];
        let (out, reader) = frame.write::<f32>(self.out)?;
        let (x, gamma) = (reader.reals(self.x)?, reader.reals(self.gamma)?);
        if out.is_empty() {
            return Ok(());
        }
        in_parts(shared.pool, out, row, 2, |start, out| {
            shared.kernels.rms_norm(&x[start..start + out.len()], row, Some(gamma), self.epsilon, out);
        });
        Ok(())
    }
}

/// out ← x `[batch, tokens, heads, d]`, with pairs of each head rotated by the angles of its token.
#[derive(Debug)]
pub(in crate::engine) struct Rotary {
    pub x: ValueId,
    pub cos: ValueId,
    pub sin: ValueId,
    pub out: ValueId,
    pub style: RotaryStyle,
}

impl Step for Rotary {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let &[_, tokens, heads, head_dim] = shared.dims(self.out) else {
            return Err("its operand has not 4 axes".into());
        };
        let in_place = shared.same_place(self.x, self.out);
        let (out, reader) = frame.write::<f32>(self.out)?;
        if out.is_empty() {
            return Ok(());
        }
        let x = if in_place { None } else { Some(reader.reals(self.x)?) };
        let (cos, sin) = (reader.reals(self.cos)?, reader.reals(self.sin)?);
        let (token, half) = (heads * head_dim, head_dim / 2);
        // A part may not run over the end of a batch, where the angles begin again.
        for (batch, out) in out.chunks_exact_mut(tokens * token).enumerate() {
            in_parts(shared.pool, out, token, 2, |start, out| {
                if let Some(x) = x {
                    out.copy_from_slice(&x[batch * tokens * token + start..][..out.len()]);
                }
                let angles = start / token * half..(start + out.len()) / token * half;
                let (cos, sin) = (&cos[angles.clone()], &sin[angles]);
                shared.kernels.rotary(Angles { style: self.style, head_dim, cos, sin }, heads, out);
            });
        }
        Ok(())
    }
}
