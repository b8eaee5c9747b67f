"""The command line: one file per noun.

What `kayos --help` needs is click alone; the client (gRPC), rich and the server are imported by the commands that use
them, when they run.
"""
