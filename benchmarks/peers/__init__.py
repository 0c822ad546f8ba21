"""The same work done by each library: one module a peer, each with a class `Peer`."""
