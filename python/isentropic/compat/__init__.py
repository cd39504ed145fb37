"""Drop-in replacements for other packages: the same names and parameters, computed by isentropic."""
