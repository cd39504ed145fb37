"""Scores in, distributions out, and the gradient back."""

import numpy as np

import isentropic

x = np.array([2.0, 1.0, 0.1, -1.0, 1.8])
print(isentropic.softmax(x, temperature=0.5).round(4))
p = isentropic.sparsemax(x)
print(p.round(4))
print(isentropic.sparsemax_vjp(x, p, np.array([1.0, 0, 0, 0, 0])).round(4))
