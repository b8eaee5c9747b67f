"""The frozen words of Kayos: values without IO, clocks or randomness, shared by every package."""
