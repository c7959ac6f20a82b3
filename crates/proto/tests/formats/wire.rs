//! The public protocol to the core and back, and what it refuses.

mod refused;
mod there_and_back;
