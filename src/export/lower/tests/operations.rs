//! Single operations that whole models have not, and what is refused.
