//! Every promise, tested on the real bus and the real binary; one module per promise.

#[cfg(test)]
mod workspace_story;
