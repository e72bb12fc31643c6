//! The parts that twins have in common: servers that this program starts as processes of itself.

use std::io::Read;

use axum::Router;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;

/// Ends this process when its parent closes its standard input or ends.
pub(crate) fn end_with_parent() {
    std::thread::spawn(|| {
        // The parent writes nothing, so any outcome of the read, even an error, means that it has gone.
        match std::io::stdin().read(&mut [0]) {
            Ok(_) | Err(_) => std::process::exit(0),
        }
    });
}

/// Prints the address on which a twin listens; the parent waits for it.
pub(crate) fn print_address(address: std::net::SocketAddr) {
    println!("twin listening on http://{address}/mcp");
}

/// Serves a router until the parent ends, with one thread per core, as many as the service has for its
/// connections.
pub(crate) fn serve(router: Router) -> anyhow::Result<()> {
    end_with_parent();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        print_address(listener.local_addr()?);
        // The service sets it too: without it, the answers of a handshake wait for delayed acknowledgements.
        let listener = listener.tap_io(|socket| {
            if let Err(error) = socket.set_nodelay(true) {
                eprintln!("a connection has no TCP_NODELAY: {error}");
            }
        });
        axum::serve(listener, router).await?;
        Ok(())
    })
}
