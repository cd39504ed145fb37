#!/usr/bin/env bash
# Scores in, distributions out.
set -euo pipefail
d=$(mktemp -d)
trap 'rm -r "$d"' EXIT
printf '2.0,1.0,0.1,-1.0,1.8\n' >"$d/scores.csv"
isentropic softmax "$d/scores.csv" --temperature 0.5
isentropic sparsemax "$d/scores.csv" -o "$d/p.npy"
isentropic compare "$d/scores.csv"

