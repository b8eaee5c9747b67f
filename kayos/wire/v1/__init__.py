"""Generated from proto/kayos/v1 by `make proto`: do not edit."""
