//! Attention over key-value caches.

use super::Step;
use crate::engine::memory::{Frame, StepResult};
use crate::graph::{CacheLayout, Int, ValueId};
use crate::kernels::{Attention as Call, KeyValues, Mask, Strides};

/// out ← attention of q `[batch, tokens, heads, d]` over caches.
#[derive(Debug)]
pub(in crate::engine) struct Attention {
    pub q: ValueId,
    pub k: Cache,
    pub v: Cache,
    /// `[tokens, positions]`; causal without.
    pub mask: Option<ValueId>,
    pub out: ValueId,
    pub layout: CacheLayout,
    pub start: Int,
    pub scale: f32,
}

/// A cache of reals, or of i8 codes with their scales and i8 zero points.
#[derive(Debug)]
pub(in crate::engine) struct Cache {
    pub data: ValueId,
    pub codes: Option<Codes>,
}

/// Scale and zero point of each head of a position.
#[derive(Debug)]
pub(in crate::engine) struct Codes {
    pub scales: ValueId,
    pub zero_points: ValueId,
}

/// What one token sees.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sight {
    Nothing,
    /// Token `i` of the run sees positions `0..=start + i`.
    Causal {
        start: usize,
    },
    Everything,
}

/// Runs of tokens that the kernel can take at once: those before the first position, those at the end of what a causal
/// mask hides, and those that see the whole cache.
fn sights(start: i64, tokens: usize, positions: usize) -> [(usize, Sight); 3] {
    let blind = usize::try_from(start.saturating_neg()).unwrap_or(0).min(tokens);
    let first = start.max(0).unsigned_abs() as usize;
    let causal = positions.saturating_sub(first).min(tokens - blind);
    [(blind, Sight::Nothing), (causal, Sight::Causal { start: first }), (tokens - blind - causal, Sight::Everything)]
}

impl Step for Attention {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let (q_dims, cache_dims) = (shared.dims(self.q), shared.dims(self.k.data));
        let (&[batch, tokens, heads, dim], &[_, second, third, _]) = (q_dims, cache_dims) else {
            return Err("its operands have not 4 axes".into());
        };
        let (positions, kv_heads) = match self.layout {
            CacheLayout::PositionMajor => (second, third),
            CacheLayout::HeadMajor => (third, second),
        };
        let strides = |dim: usize| match self.layout {
            CacheLayout::PositionMajor => Strides { token: kv_heads * dim, head: dim },
            CacheLayout::HeadMajor => Strides { token: dim, head: positions * dim },
        };
        let (out, reader) = frame.write::<f32>(self.out)?;
        if out.is_empty() {
            return Ok(());
        }
        let q = reader.reals(self.q)?;
        let cache = |cache: &Cache, batch: usize| -> StepResult<KeyValues<'_>> {
            let rows = batch * positions * kv_heads;
            Ok(match &cache.codes {
                None => KeyValues::F32 { data: &reader.reals(cache.data)?[rows * dim..], strides: strides(dim) },
                Some(codes) => KeyValues::I8 {
                    data: &reader.numbers(cache.data)?[rows * dim..],
                    strides: strides(dim),
                    scales: &reader.reals(codes.scales)?[rows..],
                    zero_points: &reader.numbers(codes.zero_points)?[rows..],
                    quant_strides: strides(1),
                },
            })
        };
        let mask = self.mask.map(|mask| reader.reals(mask)).transpose()?;
        let row = heads * dim;
        let rows = Strides { token: row, head: dim };
        for (index, out) in out.chunks_exact_mut(tokens * row).enumerate().take(batch) {
            let q = &q[index * tokens * row..][..tokens * row];
            let (k, v) = (cache(&self.k, index)?, cache(&self.v, index)?);
            let mut attend = |first: usize, queries: usize, mask: Mask<'_>| {
                let call = Call {
                    queries,
                    heads,
                    kv_heads,
                    head_dim: dim,
                    scale: self.scale,
                    mask,
                    q: &q[first * row..],
                    q_strides: rows,
                    k,
                    v,
                    out_strides: rows,
                };
                shared.kernels.attention(shared.pool, &call, &mut out[first * row..(first + queries) * row]);
            };
            if let Some(bias) = mask {
                if positions == 0 {
                    out.fill(0.0);
                    continue;
                }
                masked(bias, tokens, positions, &mut attend);
                continue;
            }
            let mut first = 0;
            let mut blind = 0;
            for (queries, sight) in sights(shared.int(self.start), tokens, positions) {
                match sight {
                    _ if queries == 0 => {}
                    Sight::Causal { start } => attend(first, queries, Mask::Causal { start }),
                    Sight::Everything if positions > 0 => attend(first, queries, Mask::Full { keys: positions }),
                    Sight::Nothing | Sight::Everything => blind += queries,
                }
                first += queries;
            }
            // Tokens that see nothing come first, or are all of them.
            out[..blind * row].fill(0.0);
        }
        Ok(())
    }
}

/// No more keys are needed than the mask shows to some token; the tail of a cache is hidden while it fills up.
fn masked(bias: &[f32], tokens: usize, positions: usize, attend: &mut impl FnMut(usize, usize, Mask<'_>)) {
    let shown = |row: &[f32]| row.iter().rposition(|&bias| bias != f32::NEG_INFINITY).map_or(1, |last| last + 1);
    let rows = bias[..tokens * positions].chunks_exact(positions);
    let keys = rows.clone().map(shown).max().unwrap_or(1);
    if tokens == 1 || keys == positions {
        return attend(0, tokens, Mask::Bias { keys, bias: &bias[..tokens * keys] });
    }
    let bias: Vec<f32> = rows.flat_map(|row| &row[..keys]).copied().collect();
    attend(0, tokens, Mask::Bias { keys, bias: &bias });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sights_split_tokens_where_the_cache_begins_and_ends() {
        use Sight::*;
        assert_eq!(sights(0, 4, 8), [(0, Nothing), (4, Causal { start: 0 }), (0, Everything)]);
        assert_eq!(sights(6, 4, 8), [(0, Nothing), (2, Causal { start: 6 }), (2, Everything)]);
        assert_eq!(sights(9, 4, 8), [(0, Nothing), (0, Causal { start: 9 }), (4, Everything)]);
        assert_eq!(sights(-3, 4, 8), [(3, Nothing), (1, Causal { start: 0 }), (0, Everything)]);
        assert_eq!(sights(i64::MIN, 2, 8)[0], (2, Nothing));
        assert_eq!(sights(i64::MAX, 2, 8)[2], (2, Everything));
    }
}
