"""The networks behind the methods; each is imported by its method's `build` alone."""
