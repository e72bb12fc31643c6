//! Every promise, tested on the real bus and the real binary; one module per promise.

mod wrap;
