//! Rows of a table, found by indices.

use super::{Step, in_parts};
use crate::engine::constant::Lines;
use crate::engine::integers;
use crate::engine::memory::{Frame, StepResult};
use crate::graph::ValueId;
use crate::tensor::DType;

/// Where the rows come from.
#[derive(Debug)]
pub(in crate::engine) enum Table {
    /// A value that holds reals as they are.
    Value(ValueId),
    /// A constant whose lines are decoded as they are asked for.
    Lines(Lines),
}

/// out ← the rows of a table that `indices` name.
#[derive(Debug)]
pub(in crate::engine) struct Embedding {
    pub table: Table,
    pub indices: ValueId,
    pub dtype: DType,
    pub out: ValueId,
}

impl Step for Embedding {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let count: usize = shared.dims(self.indices).iter().product();
        let rows = match &self.table {
            Table::Value(table) => shared.dims(*table)[0],
            Table::Lines(lines) => lines.rows(),
        };
        let (out, reader) = frame.write::<f32>(self.out)?;
        if out.is_empty() {
            return Ok(());
        }
        let row = out.len() / count;
        let indices = reader.bytes(self.indices)?;
        let place = |index: usize| {
            let place = integers::get(self.dtype, indices, index).unwrap_or(-1);
            usize::try_from(place).ok().filter(|&place| place < rows).ok_or(place)
        };
        if let Some(bad) = (0..count).find_map(|index| place(index).err()) {
            return Err(format!("index {bad} into a table of {rows} rows"));
        }
        let values = match &self.table {
            Table::Value(table) => Some(reader.reals(*table)?),
            Table::Lines(_) => None,
        };
        in_parts(shared.pool, out, row, 2, |start, out| {
            for (index, out) in out.chunks_exact_mut(row).enumerate() {
                let place = place(start / row + index).unwrap_or_default();
                match (&self.table, values) {
                    (Table::Lines(lines), _) => {
                        let columns = lines.columns();
                        let first = place * (row / columns);
                        out.chunks_exact_mut(columns).enumerate().for_each(|(i, out)| lines.read(first + i, out));
                    }
                    (_, Some(values)) => out.copy_from_slice(&values[place * row..][..row]),
                    _ => {}
                }
            }
        });
        Ok(())
    }
}
