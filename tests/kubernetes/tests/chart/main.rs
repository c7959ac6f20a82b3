//! The Helm chart: what it renders, what it refuses, and what a real API server says of it.
#![allow(clippy::unwrap_used)]

mod alerts;
mod goldens;
mod helm;
mod objects;
mod refused;
mod served;
mod truth;
