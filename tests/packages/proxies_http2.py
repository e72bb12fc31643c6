"""Checks of the proxies that speak HTTP/2 with the service: what shares a connection, a client that does not read, a restart."""

PARTS = ()
