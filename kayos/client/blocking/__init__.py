"""The blocking shell: gRPC's synchronous calls, and threads where something must happen by itself."""
