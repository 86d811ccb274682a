"""The methods that are compared, one file each; found through the entry points of this package."""
