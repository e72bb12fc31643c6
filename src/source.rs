//! Where changes come from: each source watches one kind of truth and tells the bus what it finds.
//!
//! A source owns the resources it registered and removes no others. Sources never speak to clients, hold no
//! versions and do not decide what counts as a change: they hand over content, and the bus compares it.

pub mod workspace;
