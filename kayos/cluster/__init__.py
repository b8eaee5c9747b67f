"""Who serves what: the coordinator's interface, the node that runs alone, the cluster that a file names."""
