"""One replica's durable state: the store's interface, LMDB behind it, and the in-memory twin."""
