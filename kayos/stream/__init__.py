"""The conversation between a replica and the one it follows: its words and its decisions, without IO."""
