"""What the figures share: a look that is the same on every machine, and where they go. Needs matplotlib."""

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent

# A white ground is drawn too, so that the figures can be read on a dark page. The salt makes identifiers reproducible.
plt.rcParams.update(
    {
        "svg.hashsalt": "isentropic",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 9.5,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "lines.linewidth": 1.7,
    }
)

# Distinct also without colour vision (Okabe, Ito 2008).
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PINK = "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
GREY = "0.55"


def save(figure, name):
    """Writes docs/figures/NAME.svg, the same bytes for the same figure."""
    figure.savefig(HERE / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
