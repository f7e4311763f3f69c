//! Which words begin at a place of a text: asked at every character, so it must not cost more than the longest word.

use std::collections::HashMap;

/// A set of byte strings, each with a number, in a tree by common beginnings.
#[derive(Debug, Clone)]
pub(super) struct Trie {
    children: HashMap<(u32, u8), u32>,
    /// The number of the word that ends at each node.
    values: Vec<Option<u32>>,
}

impl Trie {
    /// No words.
    pub(super) fn new() -> Self {
        Self { children: HashMap::new(), values: vec![None] }
    }

    /// Adds `word`, which is not empty.
    pub(super) fn insert(&mut self, word: &[u8], value: u32) {
        let mut node = 0;
        for &byte in word {
            let fresh = self.values.len() as u32;
            node = *self.children.entry((node, byte)).or_insert(fresh);
            if node == fresh {
                self.values.push(None);
            }
        }
        self.values[node as usize] = Some(value);
    }

    /// Every word that `text` begins with, the shortest first: its length and number.
    pub(super) fn prefixes<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = (usize, u32)> + 'a {
        let mut node = 0;
        let nodes = text.iter().map_while(move |&byte| {
            node = *self.children.get(&(node, byte))?;
            Some(node)
        });
        nodes.enumerate().filter_map(|(i, node)| Some((i + 1, self.values[node as usize]?)))
    }

    /// The longest word that `text` begins with: its length and number.
    pub(super) fn longest(&self, text: &[u8]) -> Option<(usize, u32)> {
        self.prefixes(text).last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_every_word_at_the_beginning_of_a_text() {
        let mut trie = Trie::new();
        for (value, word) in ["a", "abc", "abd", "b"].into_iter().enumerate() {
            trie.insert(word.as_bytes(), value as u32);
        }
        assert_eq!(trie.prefixes(b"abcd").collect::<Vec<_>>(), [(1, 0), (3, 1)]);
        assert_eq!(trie.longest(b"abd"), Some((3, 2)));
        assert_eq!(trie.longest(b"ab"), Some((1, 0)));
        assert_eq!(trie.longest(b"ca"), None);
        assert_eq!(Trie::new().longest(b"a"), None);
    }
}
