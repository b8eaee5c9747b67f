"""One shard on one node as a pure machine: events in, effects out, no clock, IO or randomness."""
