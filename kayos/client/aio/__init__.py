"""The asyncio shell: grpc.aio on the caller's own event loop."""
