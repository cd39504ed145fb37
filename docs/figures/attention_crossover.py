"""Draws docs/figures/attention_crossover.svg from the table of bench/RESULTS.md that bench/python_attention.py prints."""

import re

from _style import BLUE, GREY, HERE, ORANGE, plt, save

table = (HERE / "../../bench/RESULTS.md").read_text().split("| us a query |")[1].split("\n\n")[0]
head, _, *rows = table.splitlines()
keys = [int(n) for n in re.findall(r"\d+", head)]
figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True, layout="constrained")
colors = {"torch, softmax": GREY, "softmax": BLUE, "linear": ORANGE}
for row in rows:
    label, *cells = (cell.strip() for cell in row.strip("|").split("|"))
    name, causal, _ = label.partition(", causal")
    axis = axes[1 if causal else 0]
    axis.loglog(keys, [float(cell) for cell in cells], color=colors[name], marker="o", markersize=3, label=name)
for axis, title in zip(axes, ("all keys", "causal"), strict=True):
    axis.set_title(title)
    axis.set_xlabel("keys")
axes[0].set_ylabel("us a query")
axes[0].legend()
save(figure, "attention_crossover")
