//! SentencePiece's compiled character replacements: a Darts-clone double array that finds the longest rule, and the
//! replacement texts.

use super::super::error::Defect;

/// The reference library looks at no more rules than this for one place of the text.
const MAX_MATCHES: usize = 32;
/// Longest replacement, in bytes; the longest of Unicode's NFKC has 33.
const MAX_REPLACEMENT: usize = 1024;

/// The rules of a normalizer such as `nmt_nfkc`. Without rules nothing is replaced.
#[derive(Debug, Clone, Default)]
pub(super) struct Charsmap {
    units: Vec<Unit>,
    /// Replacements, each ended by a NUL.
    texts: Vec<u8>,
}

/// A node of the double array: 32 bits that hold either a label and an offset or a leaf's value.
#[derive(Debug, Clone, Copy)]
struct Unit(u32);

impl Unit {
    /// Whether a rule ends at this node; leaves themselves, with bit 31 set, hold a value in these bits.
    fn has_leaf(self) -> bool {
        self.0 & (1 << 31 | 1 << 8) == 1 << 8
    }

    /// The byte on the way to this node; leaves have bit 31 set, so no byte leads to them.
    fn label(self) -> u32 {
        self.0 & (1 << 31 | 0xFF)
    }

    fn offset(self) -> u32 {
        (self.0 >> 10) << ((self.0 & 1 << 9) >> 6)
    }

    fn value(self) -> u32 {
        self.0 & !(1 << 31)
    }
}

impl Charsmap {
    /// Reads `precompiled_charsmap`: the double array's size in bytes, the double array, the replacements.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Defect> {
        let damaged = |problem| Defect::Charsmap { problem };
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let (size, rest) = bytes.split_first_chunk::<4>().ok_or(damaged("it has no size"))?;
        let size = u32::from_le_bytes(*size) as usize;
        let (array, texts) = rest.split_at_checked(size).ok_or(damaged("its array is cut off"))?;
        let (units, odd) = array.as_chunks::<4>();
        if units.is_empty() || !odd.is_empty() {
            return Err(damaged("the size of its array is not a positive multiple of 4"));
        }
        if texts.last() != Some(&0) {
            return Err(damaged("its replacements do not end with NUL"));
        }
        if texts.split(|byte| *byte == 0).any(|text| text.len() > MAX_REPLACEMENT) {
            return Err(damaged("a replacement is longer than 1024 bytes"));
        }
        let units: Vec<Unit> = units.iter().map(|unit| Unit(u32::from_le_bytes(*unit))).collect();
        for (at, unit) in units.iter().enumerate().filter(|(_, unit)| unit.has_leaf()) {
            let leaf = units.get(at ^ unit.offset() as usize).map(|leaf| leaf.value() as usize);
            if leaf.is_none_or(|text| text >= texts.len()) {
                return Err(damaged("a rule points outside"));
            }
        }
        Ok(Self { units, texts: texts.to_vec() })
    }

    /// The longest rule for the beginning of `text`: how many bytes it replaces, and by what.
    pub(super) fn longest(&self, text: &[u8]) -> Option<(usize, &[u8])> {
        let mut at = self.units.first()?.offset();
        let mut leaf = None;
        let mut matches = 0;
        for (i, &byte) in text.iter().enumerate() {
            at ^= u32::from(byte);
            let node = self.units.get(at as usize).filter(|node| node.label() == u32::from(byte));
            let Some(node) = node else { break };
            at ^= node.offset();
            if node.has_leaf() && matches < MAX_MATCHES {
                leaf = Some((i + 1, at));
                matches += 1;
            }
        }
        let (len, at) = leaf?;
        let text = self.units.get(at as usize)?.value() as usize;
        let replacement = self.texts.get(text..)?.split(|byte| *byte == 0).next()?;
        Some((len, replacement))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defect(bytes: &[u8]) -> Defect {
        Charsmap::parse(bytes).err().unwrap()
    }

    #[test]
    fn damaged_maps_are_told_apart() {
        for (bytes, problem) in [
            (&b"\x04\0\0"[..], "it has no size"),
            (b"\x08\0\0\0\0\0\0\0", "its array is cut off"),
            (b"\x03\0\0\0\0\0\0\0", "the size of its array is not a positive multiple of 4"),
            (b"\0\0\0\0\0", "the size of its array is not a positive multiple of 4"),
            (b"\x04\0\0\0\0\0\0\0", "its replacements do not end with NUL"),
            (b"\x04\0\0\0\0\0\0\0abc", "its replacements do not end with NUL"),
            (&[b"\x04\0\0\0\0\0\0\0", &[b'x'; 1025][..], b"\0"].concat(), "a replacement is longer than 1024 bytes"),
        ] {
            assert_eq!(defect(bytes), Defect::Charsmap { problem }, "{bytes:?}");
        }
    }

    /// An array of a root, a node for `a` with a leaf, and the leaf.
    fn single_rule(text: u32) -> Result<Charsmap, Defect> {
        let mut units = vec![0u32; 0x100];
        units[0] = 1 << 10; // offset 1
        let a = 1 ^ u32::from(b'a');
        units[a as usize] = u32::from(b'a') | 1 << 8 | 2 << 10; // offset 2, has a leaf
        units[(a ^ 2) as usize] = text | 1 << 31;
        let mut bytes = (units.len() as u32 * 4).to_le_bytes().to_vec();
        units.iter().for_each(|unit| bytes.extend(unit.to_le_bytes()));
        bytes.extend(b"x\0yz\0");
        Charsmap::parse(&bytes)
    }

    #[test]
    fn a_rule_replaces_the_beginning_of_the_text() {
        let map = single_rule(2).unwrap();
        assert_eq!(map.longest(b"ab"), Some((1, &b"yz"[..])));
        assert_eq!(map.longest(b"ba"), None);
        assert_eq!(map.longest(b"\xFF"), None);
        assert_eq!(map.longest(b""), None);
        assert_eq!(Charsmap::default().longest(b"ab"), None);
    }

    #[test]
    fn a_rule_that_points_outside_is_an_error() {
        assert_eq!(single_rule(5).err(), Some(Defect::Charsmap { problem: "a rule points outside" }));
    }
}
