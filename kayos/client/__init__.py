"""The client: producers, consumers and administration, asyncio and blocking.

`core/` holds every decision and does no IO; `aio/` and `blocking/` are two thin shells over it with the same
file names. Nothing here imports the server, the store or the command line.
"""
