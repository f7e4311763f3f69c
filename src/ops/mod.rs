//! Operators that a `.pte` calls by name, one family a file.
