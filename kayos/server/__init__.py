"""The node: gRPC services over shards, each a store with one writer thread."""
