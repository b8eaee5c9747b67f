"""Who serves what: the coordinator's interface and the static coordinator of a node that runs alone."""
