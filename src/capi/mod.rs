//! The C border: guard, handles, status; one file a C type.
