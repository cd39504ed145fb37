"""The functions of NumPy arrays and of what becomes one: package isentropic gives them to users."""
