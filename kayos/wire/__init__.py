"""The schema in Python: generated code, codec and the mapping of errors to gRPC status."""
