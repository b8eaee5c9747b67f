"""What the client decides, without IO: routing, batching, numbering, retries, snapshots."""
