//! What a node exports to a collector, by OTLP: the spans of calls, and the figures of `/metrics`.
//!
//! ```text
//!   TraceLayer, frames, the log ── spans ──> Tracer ── Queue ──┐
//!                          which, how many         bounded     ├──> Collector ── OTLP by gRPC
//!   Metrics, the page of /metrics ── every minute ─────────────┘    bounded in time and bytes
//! ```
//!
//! It sits beside the node: nothing here is waited for by a call, by the log or by another node.

#[cfg(feature = "otel")]
mod encoding;
#[cfg(feature = "otel")]
mod figures;
mod layer;
#[cfg(feature = "otel")]
mod messages;
#[cfg(feature = "otel")]
mod queue;
#[cfg(feature = "otel")]
mod sending;
#[cfg(feature = "otel")]
mod telemetry;
#[cfg(feature = "otel")]
mod tracer;
#[cfg(not(feature = "otel"))]
mod without;

pub(crate) use layer::TraceLayer;
#[cfg(feature = "otel")]
pub(crate) use telemetry::Telemetry;
#[cfg(not(feature = "otel"))]
pub(crate) use without::Telemetry;

#[cfg(all(test, feature = "otel"))]
mod tests;
