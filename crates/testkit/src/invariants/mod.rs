//! What must hold after each entry.
