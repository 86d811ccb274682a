"""σN-Ens: one network that answers as M."""
