//! Damaged files: whatever happens to the bytes, reading ends soon, without a panic, in a program or a typed error.

use super::super::schema::{boxed, execution_plan, value_kind};
use super::*;

fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..1 + rng.below(4) {
        let at = rng.below(bytes.len());
        match rng.below(8) {
            0 => bytes.truncate(at),
            1 => {
                let (from, len) = (rng.below(bytes.len()), 1 + rng.below(32));
                let splice: Vec<u8> = bytes.iter().skip(from).take(len).copied().collect();
                let end = (at + splice.len()).min(bytes.len());
                bytes.splice(at..end, splice);
            }
            // Offsets and counts are words.
            2 | 3 => {
                let word = rng.pick(&[0, 1, 4, 0x7fff_ffff, 0x8000_0000, u32::MAX]).to_le_bytes();
                let at = at & !3;
                let end = (at + 4).min(bytes.len());
                bytes.splice(at..end, word);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
        }
    }
}

fn has_nan(program: &Program) -> bool {
    program.plans.iter().flat_map(|plan| &plan.values).any(|value| match value {
        EValue::Double(number) => number.is_nan(),
        EValue::DoubleList(numbers) => numbers.iter().any(|number| number.is_nan()),
        _ => false,
    })
}

#[test]
fn damaged_programs_end_in_an_error_or_a_sound_program() {
    let mut rng = Rng(2);
    let (mut sound, mut refused) = (0, 0);
    for round in 0..3000 {
        let mut bytes = if round % 2 == 0 { sample() } else { random_program(&mut rng) }.to_bytes().unwrap();
        mutate(&mut rng, &mut bytes);
        match read(bytes) {
            Ok(program) => {
                sound += 1;
                let again = read(program.to_bytes().unwrap()).unwrap();
                assert!(again == program || has_nan(&program), "round {round}: {program:?}");
            }
            Err(_) => refused += 1,
        }
    }
    assert!(sound > 100 && refused > 100, "{sound} sound, {refused} refused");
}

#[test]
fn every_truncation_is_refused() {
    let bytes = sample().to_bytes().unwrap();
    for len in 0..bytes.len() {
        assert!(read(bytes[..len].to_vec()).is_err(), "cut at {len}");
    }
}

/// The position that the offset at `at` leads to.
fn follow(bytes: &[u8], at: usize) -> usize {
    at + u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

#[test]
fn one_list_used_by_all_values_is_refused() {
    // A thousand values, each a list of a thousand doubles, would be 8 MB out of 40 KB.
    let list = || tagged(value_kind::DOUBLE_LIST, Fields::new().scalars::<f64>(boxed::ITEM, []));
    let values = (0..1000).map(|index| match index {
        0 => tagged(value_kind::DOUBLE_LIST, Fields::new().scalars(boxed::ITEM, (0..1000).map(f64::from))),
        _ => list(),
    });
    let mut bytes = bare_with_plan(
        // The only vector of the only plan is then easy to find: it holds the largest count.
        Fields::new().string(execution_plan::NAME, "forward").tables(execution_plan::VALUES, values),
    );
    assert!(read(bytes.clone()).is_ok());
    let vector = (0..bytes.len()).step_by(4).find(|&at| bytes[at..at + 4] == 1000u32.to_le_bytes()).unwrap();
    let first = follow(&bytes, vector + 4);
    for slot in (1..1000).map(|index| vector + 4 + 4 * index) {
        bytes[slot..slot + 4].copy_from_slice(&((first - slot) as u32).to_le_bytes());
    }
    assert!(matches!(read(bytes), Err(PteError::Flatbuffer(FlatbufferError::TooManyItems { .. }))));
}

#[test]
fn impossible_counts_do_not_allocate() {
    let mut bytes = bare_with_values([tagged(value_kind::NULL, Fields::new())]);
    let plans = (8..bytes.len()).step_by(4).find(|&at| bytes[at..at + 4] == 1u32.to_le_bytes()).unwrap();
    bytes[plans..plans + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(read(bytes), Err(PteError::Flatbuffer(FlatbufferError::Outside { .. }))));
}
