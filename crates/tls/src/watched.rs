//! A value made of files, made again when one of them has changed.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::TlsError;
use crate::pem::{Pem, Stamp};

type Make<T> = Box<dyn Fn() -> Result<T, TlsError> + Send + Sync>;

/// See the module.
pub(crate) struct Watched<T> {
    sources: Vec<Pem>,
    make: Make<T>,
    state: Mutex<State<T>>,
}

struct State<T> {
    stamps: Vec<Option<Stamp>>,
    value: Arc<T>,
}

impl<T> Watched<T> {
    /// Makes the value for the first time.
    pub(crate) fn new(
        sources: Vec<Pem>,
        make: impl Fn() -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        // Before the files are read: what changes in between is noticed the next time.
        let stamps = stamps(&sources);
        let value = Arc::new(make()?);
        Ok(Self {
            sources,
            make: Box::new(make),
            state: Mutex::new(State { stamps, value }),
        })
    }

    /// The value of the files as they are; of those before if these cannot be used: a certificate
    /// may have been replaced a moment before its key.
    pub(crate) fn current(&self) -> Arc<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.sources);
        if stamps != state.stamps {
            state.stamps = stamps;
            match (self.make)() {
                Ok(value) => {
                    state.value = Arc::new(value);
                    tracing::info!("new connections use the new certificates");
                }
                Err(error) => {
                    tracing::warn!(%error, "changed certificates cannot be used; the former stay");
                }
            }
        }
        Arc::clone(&state.value)
    }
}

fn stamps(sources: &[Pem]) -> Vec<Option<Stamp>> {
    sources.iter().map(Pem::stamp).collect()
}
